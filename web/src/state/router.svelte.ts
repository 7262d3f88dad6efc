// The view that the address asks for.
import { formatRoute, parseRoute, type Route } from '../lib/route';

class Router {
  route = $state.raw<Route>(parseRoute(location.hash));

  start(): void {
    addEventListener('hashchange', () => (this.route = parseRoute(location.hash)));
  }

  go(route: Route): void {
    location.hash = formatRoute(route);
  }
}

export const router = new Router();
