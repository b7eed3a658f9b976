// Command lines that one can paste into a shell.

// quote returns a word for a POSIX shell.
export function quote(word: string): string {
  return /^[A-Za-z0-9_./:@%+=,-]+$/.test(word) ? word : `'${word.replace(/'/g, `'\\''`)}'`;
}

// curl returns the command that sends a request of the API. The key is in a variable, so that it is not copied. The body is JSON.
export function curl(server: string, method: string, path: string, body?: string): string {
  const words = ["curl"];
  if (method !== "GET" && !(method === "POST" && body !== undefined)) words.push("-X", method);
  words.push("-H", '"Authorization: Bearer $STEPWELL_API_KEY"', quote(server + path));
  if (body !== undefined) words.push("--json", quote(body));
  return words.join(" ");
}
