import { afterEach, describe, expect, test, vi } from 'vitest';
import { address, ApiError, call } from './api';
import { Publishing } from './publishing';
import { WorldApi } from './world';

afterEach(() => vi.unstubAllGlobals());

/** Answers requests in turn and remembers them. */
function serve(...answers: (() => Response)[]): { url: string; init: RequestInit }[] {
  const requests: { url: string; init: RequestInit }[] = [];
  vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
    requests.push({ url, init });
    const answer = answers[requests.length - 1];
    if (answer === undefined) throw new TypeError('Failed to fetch');
    return answer();
  });
  return requests;
}

const unreachable = (): Response => {
  throw new TypeError('Failed to fetch');
};
const ok = (body: unknown) => () => new Response(JSON.stringify(body));
const refused =
  (status: number, code: string, headers = {}) =>
  () =>
    new Response(JSON.stringify({ error: { code, message: `it is ${code}`, requestId: 'theirs' } }), {
      status,
      headers,
    });

async function problemOf(answer: Promise<unknown>): Promise<ApiError> {
  const problem = await answer.then(
    () => null,
    (cause: unknown) => cause,
  );
  if (!(problem instanceof ApiError)) throw new Error('expected an ApiError');
  return problem;
}

describe('a call', () => {
  test('carries a request id of its own that the service accepts', async () => {
    const requests = serve(ok({}), ok({}));
    await call('', '/v1/me');
    await call('', '/v1/me');
    const ids = requests.map(({ init }) => (init.headers as Record<string, string>)['X-Request-Id']);
    expect(ids[0]).toMatch(/^[A-Za-z0-9._-]{1,64}$/);
    expect(ids[0]).not.toBe(ids[1]);
  });

  test("fails with the service's own words", async () => {
    serve(refused(412, 'changed'));
    const problem = await problemOf(call('', '/v1/articles/a'));
    expect(problem).toMatchObject({
      status: 412,
      code: 'changed',
      message: 'it is changed',
      requestId: 'theirs',
      refused: true,
    });
  });

  test('tells when to come back', async () => {
    serve(refused(503, 'unavailable', { 'Retry-After': '2' }));
    expect(await problemOf(call('', '/v1/me'))).toMatchObject({ retryAfterMs: 2000, refused: false });
  });

  test('without an answer is unreachable, which is no refusal', async () => {
    serve();
    expect(await problemOf(call('', '/v1/me'))).toMatchObject({ status: 0, code: 'unreachable', refused: false });
  });

  test('survives an answer that is not JSON', async () => {
    serve(() => new Response('<html>', { status: 502 }));
    expect(await problemOf(call('', '/v1/me'))).toMatchObject({ status: 502, code: 'unexpected' });
  });
});

test.each([
  ['', '/v1/me', {}, '/v1/me'],
  ['http://localhost:8081/', '/v1/me', {}, 'http://localhost:8081/v1/me'],
  ['', '/v1/articles', { tag: 'a&b', continuation: undefined }, '/v1/articles?tag=a%26b'],
])('%j and %j with %j make %j', (base, path, query, expected) => expect(address(base, path, query)).toBe(expected));

describe('a signed call', () => {
  const identity = { token: async () => 'old', renew: async () => 'new' };
  const tokens = (requests: { init: RequestInit }[]) =>
    requests.map(({ init }) => (init.headers as Record<string, string>)['Authorization']);

  test('renews a token that is no longer taken, once', async () => {
    const requests = serve(refused(401, 'unauthenticated'), ok({ moved: [] }));
    await new Publishing('', identity).migrateSubscriptions();
    expect(tokens(requests)).toEqual(['Bearer old', 'Bearer new']);
  });

  test('is not repeated after any other failure', async () => {
    const requests = serve(refused(503, 'unavailable'), ok({}));
    await problemOf(new Publishing('', identity).publish({ category: 'c', tags: [], title: 't', body: 'b' }, 'key'));
    expect(requests).toHaveLength(1);
    expect(requests[0]?.init.headers).toMatchObject({ 'Idempotency-Key': 'key' });
  });
});

test.each([
  [undefined, { filter: 'tag:ski' }],
  [0, { filter: 'tag:ski' }],
  [5, { filter: 'tag:ski', backfill: 5 }],
])('a subscription with %j articles of before is asked for with %j', async (backfill, expected) => {
  const requests = serve(ok({ filter: 'tag:ski', since: 1 }));
  const identity = { token: async () => 'mine', renew: async () => null };
  await new Publishing('', identity).subscribe('tag:ski', backfill);
  expect(JSON.parse(String(requests[0]?.init.body))).toEqual(expected);
});

describe('the world', () => {
  const world = new WorldApi(() => ['', 'http://localhost:8081/']);

  test('is asked of the next service when one cannot be reached', async () => {
    const requests = serve(unreachable, ok({ regions: [] }));
    expect(await world.read()).toEqual({ regions: [] });
    expect(requests.map(({ url }) => url)).toEqual(['/v1/world', 'http://localhost:8081/v1/world']);
  });

  test('takes a refusal for an answer', async () => {
    const requests = serve(refused(503, 'unavailable'), ok({}));
    expect(await problemOf(world.failover('usa', 'North Europe'))).toMatchObject({ code: 'unavailable' });
    expect(requests).toHaveLength(1);
  });

  test('is absent where the platform has none', async () => {
    serve(refused(404, 'not-found'));
    expect(await world.read()).toBeNull();
  });

  test('takes only the settings of a link that can be set', async () => {
    const requests = serve(ok([]));
    const settings = { from: 'a', to: 'b', latencyMs: 1, jitterMs: 0, loss: 0, cut: true, paused: false };
    await world.setLink({ ...settings, bytesPerSecond: null } as typeof settings);
    expect(JSON.parse(String(requests[0]?.init.body))).toEqual(settings);
  });
});
