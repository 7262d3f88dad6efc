// What the browser keeps between visits. Storage may be full or forbidden; the application works without it.

export function recall(name: string): string | null {
  try {
    return localStorage.getItem(`orrery.${name}`);
  } catch {
    return null;
  }
}

export function remember(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(`orrery.${name}`);
    else localStorage.setItem(`orrery.${name}`, value);
  } catch {
    // Forgetting is all that happens.
  }
}
