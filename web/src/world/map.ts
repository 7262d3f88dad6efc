// What the map shows, made from what the API says.
import { formatMs } from '../lib/format';
import type { Flight } from '../lib/flight';
import type { Link, World } from '../lib/types';

export interface MapNode {
  name: string;
  latitude: number;
  longitude: number;
  off: boolean;
  ring: boolean;
  note: string;
  /** One per account: the region it belongs to, and whether it is written here. */
  pips: { home: string; writes: boolean }[];
}

export interface MapArc {
  from: string;
  to: string;
  kind: 'open' | 'cut' | 'paused' | 'idle' | 'moving' | 'done';
  strong: boolean;
  text: string;
}

/** More labels and more strong lines than this would hide the map; the table has them all. */
const N_LINKS_SHOWN = 12;
/** With more accounts than this, only the places where they are written are marked. */
const N_ACCOUNTS_SHOWN = 5;

export function worldNodes(world: World, homeOf: (account: string) => string): MapNode[] {
  return world.regions.map(({ name, latitude, longitude, state }) => ({
    name,
    latitude,
    longitude,
    off: state === 'stopped',
    ring: false,
    note: state === 'stopped' ? 'stopped' : '',
    pips: world.accounts.flatMap((account) => {
      const here = account.regions.find((region) => region.name === name);
      const shown = here?.role === 'write' || world.accounts.length <= N_ACCOUNTS_SHOWN;
      return here && shown ? [{ home: homeOf(account.tag), writes: here.role === 'write' }] : [];
    }),
  }));
}

export function worldArcs(links: Link[], highlighted: string | null): MapArc[] {
  const many = links.length > N_LINKS_SHOWN;
  const quiet = (link: Link) => many && !link.cut && !link.paused && linkName(link) !== highlighted;
  return links.map((link) => ({
    from: link.from,
    to: link.to,
    kind: link.cut ? 'cut' : link.paused ? 'paused' : quiet(link) ? 'idle' : 'open',
    strong: linkName(link) === highlighted,
    text: quiet(link) ? '' : linkState(link),
  }));
}

export function flightNodes(world: World, flight: Flight): MapNode[] {
  return world.regions.map(({ name, latitude, longitude, state }) => {
    const leg = flight.legs.find(({ region }) => region === name);
    const arrived = leg?.state === 'arrived';
    return {
      name,
      latitude,
      longitude,
      off: state === 'stopped',
      ring: arrived,
      note: leg?.state === 'arrived' ? formatMs(leg.presentMs) : 'on its way',
      pips: [],
    };
  });
}

/** `origin` is where the article's account is written, which need not be where it was published. */
export function flightArcs(flight: Flight, origin: string): MapArc[] {
  return flight.legs
    .filter(({ region }) => region !== origin)
    .map((leg) => {
      const arrived = leg.state === 'arrived';
      return { from: origin, to: leg.region, kind: arrived ? 'done' : 'moving', strong: arrived, text: '' };
    });
}

export function linkName({ from, to }: { from: string; to: string }): string {
  return `${from} → ${to}`;
}

export function linkState(link: Link): string {
  if (link.cut) return 'cut';
  return link.paused ? 'paused' : formatMs(link.latencyMs);
}
