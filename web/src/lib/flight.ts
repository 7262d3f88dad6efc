// An article in flight: when each region's service could first read it, counted from the answer to its publication.
//
// Arrival is observed by asking, so it is known as an interval: after `absentMs`, not later than `presentMs`.

export type Leg =
  | { region: string; state: 'waiting'; absentMs: number; problem: string | null }
  | { region: string; state: 'arrived'; absentMs: number; presentMs: number };

export interface Flight {
  id: string;
  from: string;
  legs: Leg[];
}

export type Sighting = 'present' | 'absent' | { problem: string };

export function launch(id: string, from: string, regions: string[]): Flight {
  return { id, from, legs: regions.map((region) => ({ region, state: 'waiting', absentMs: 0, problem: null })) };
}

/** `askedMs` and `answeredMs` bracket the look: absent holds when asked, present when answered. */
export function withSighting(
  flight: Flight,
  region: string,
  askedMs: number,
  answeredMs: number,
  seen: Sighting,
): Flight {
  return {
    ...flight,
    legs: flight.legs.map((leg) => (leg.region === region ? move(leg, askedMs, answeredMs, seen) : leg)),
  };
}

export function hasLanded(flight: Flight): boolean {
  return flight.legs.every((leg) => leg.state === 'arrived');
}

function move(leg: Leg, askedMs: number, answeredMs: number, seen: Sighting): Leg {
  if (leg.state === 'arrived') return leg;
  if (seen === 'present')
    return { region: leg.region, state: 'arrived', absentMs: leg.absentMs, presentMs: Math.max(0, answeredMs) };
  if (seen === 'absent') return { ...leg, absentMs: Math.max(leg.absentMs, askedMs), problem: null };
  return { ...leg, problem: seen.problem };
}
