// The map's geometry: where a place lies on the page, and how links bend so that both directions can be told apart.

export interface Point {
  x: number;
  y: number;
}

export interface Place {
  latitude: number;
  longitude: number;
}

/** The part of the world that is drawn: no poles, where nobody runs a region. */
export const NORTH = 78;
export const SOUTH = -56;
export const MAP_WIDTH = 960;
/** Degrees of latitude are drawn a little taller than those of longitude, as a map of the middle latitudes would. */
const STRETCH = 1.2;
const UNITS_PER_DEGREE = MAP_WIDTH / 360;
export const MAP_HEIGHT = Math.round((NORTH - SOUTH) * UNITS_PER_DEGREE * STRETCH);

export function project({ latitude, longitude }: Place): Point {
  const wrapped = ((((longitude + 180) % 360) + 360) % 360) - 180;
  const clamped = Math.min(NORTH, Math.max(SOUTH, latitude));
  return { x: (wrapped + 180) * UNITS_PER_DEGREE, y: (NORTH - clamped) * UNITS_PER_DEGREE * STRETCH };
}

export interface Arc {
  path: string;
  /** Where the arrow stands: nearer to the start, so that those of crossing arcs keep apart. */
  mark: Point;
  /** Where the label stands: beside the arrow, outside of the lens. */
  label: Point;
  /** The direction of travel there, in degrees clockwise from the x axis. */
  heading: number;
}

const BEND = 0.16;
/** Where on the arc the arrow and its label may stand, the best place first. */
const MARKS = [0.36, 0.28, 0.44, 0.2, 0.52] as const;
const LABEL_DISTANCE = 13;
/** The words below a node: half their width with half a label, and how far up and down they keep labels away. */
const NAME = { width: 85, above: 12, below: 58 };

/**
 * A curve that bends to the left of its direction, so that the way there and the way back form a lens. Its label keeps clear of the
 * names below the nodes, where there is room.
 */
export function arc(from: Point, to: Point, gap = 0, nodes: readonly Point[] = []): Arc {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  const control = { x: (from.x + to.x) / 2 + dy * BEND, y: (from.y + to.y) / 2 - dx * BEND };
  const start = toward(from, control, Math.min(gap, length / 3));
  const end = toward(to, control, Math.min(gap, length / 3));
  const labelAt = (share: number): Point => {
    const { x, y } = along(start, control, end, share);
    return { x: x + (dy / length) * LABEL_DISTANCE, y: y - (dx / length) * LABEL_DISTANCE };
  };
  const share = MARKS.find((share) => nodes.every((node) => !hides(node, labelAt(share)))) ?? MARKS[0];
  const mark = along(start, control, end, share);
  const ahead = along(start, control, end, share + 0.05);
  return {
    path: `M${round(start.x)} ${round(start.y)}Q${round(control.x)} ${round(control.y)} ${round(end.x)} ${round(end.y)}`,
    mark,
    label: labelAt(share),
    heading: (Math.atan2(ahead.y - mark.y, ahead.x - mark.x) * 180) / Math.PI,
  };
}

/** Whether a label would lie under the name of a node. */
function hides(node: Point, label: Point): boolean {
  const [dx, dy] = [label.x - node.x, label.y - node.y];
  return Math.abs(dx) < NAME.width && dy > -NAME.above && dy < NAME.below;
}

/** The point at `share` (0 to 1) of the curve. */
export function along(start: Point, control: Point, end: Point, share: number): Point {
  const rest = 1 - share;
  const mix = (a: number, b: number, c: number) => rest * rest * a + 2 * rest * share * b + share * share * c;
  return { x: mix(start.x, control.x, end.x), y: mix(start.y, control.y, end.y) };
}

/** Even-odd rule; a ring is a list of `[longitude, latitude]`. */
export function contains(ring: readonly (readonly [number, number])[], { latitude, longitude }: Place): boolean {
  let inside = false;
  let previous = ring.at(-1);
  for (const corner of ring) {
    if (previous && corner[1] > latitude !== previous[1] > latitude) {
      const share = (latitude - corner[1]) / (previous[1] - corner[1]);
      if (longitude < corner[0] + (previous[0] - corner[0]) * share) inside = !inside;
    }
    previous = corner;
  }
  return inside;
}

function toward(from: Point, to: Point, distance: number): Point {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: from.x + ((to.x - from.x) * distance) / length, y: from.y + ((to.y - from.y) * distance) / length };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
