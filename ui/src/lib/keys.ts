// Keys and sequences of two keys, such as "g r".

export type Bindings = Record<string, () => void>;

// Matcher finds the binding of the keys that were pressed.
export class Matcher {
  private prefix = "";
  private since = 0;

  // press returns what a key is bound to at a time, alone or after the key before it; null for nothing.
  press(key: string, now: number, bindings: Bindings): (() => void) | null {
    const sequence = this.prefix && now - this.since < 1000 ? `${this.prefix} ${key}` : key;
    this.prefix = "";
    const found = bindings[sequence] ?? bindings[key];
    if (found) return found;
    if (Object.keys(bindings).some((b) => b.startsWith(`${key} `))) {
      this.prefix = key;
      this.since = now;
    }
    return null;
  }
}
