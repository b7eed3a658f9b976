// What is typed into forms.

// parseAttributes parses attributes, one NAME=VALUE a line. It returns the first line that is none as the problem.
export function parseAttributes(text: string): { attributes: Record<string, string>; problem: string } {
  const attributes: Record<string, string> = {};
  for (const line of text.split("\n").map((l) => l.trim()).filter(Boolean)) {
    const at = line.indexOf("=");
    if (at < 1) return { attributes, problem: `“${line}” is not name=value.` };
    attributes[line.slice(0, at)] = line.slice(at + 1);
  }
  return { attributes, problem: "" };
}

// formatAttributes is the reverse of parseAttributes.
export function formatAttributes(attributes: Record<string, string>): string {
  return Object.entries(attributes).map(([name, value]) => `${name}=${value}`).join("\n");
}
