// Every region has one colour, used for its node, its lines and its home account. The values stand in the style sheet.

const N_COLOURS = 8;

/** The number of the colour: regions take them in order, and start again when there are more regions than colours. */
export function colourOf(region: string, regions: readonly string[]): number {
  const idx = regions.indexOf(region);
  return idx < 0 ? 0 : (idx % N_COLOURS) + 1;
}

export function colourVariable(colour: number): string {
  return `var(--series-${colour})`;
}
