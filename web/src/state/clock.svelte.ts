// The time, good to a few seconds: what ages on the page follows it.

const TICK_MS = 5000;

class Clock {
  now = $state(Date.now());

  constructor() {
    setInterval(() => (this.now = Date.now()), TICK_MS);
  }
}

export const clock = new Clock();
