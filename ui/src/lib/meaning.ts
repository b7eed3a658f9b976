// What the last error of a message means: a sentence, and the paragraph of docs/function-contract.md about it.

export interface Meaning {
  text: string;
  anchor: string;
}

// The first expression that matches counts.
const meanings: Array<[RegExp, string, string]> = [
  [/^the answer was refused: .*(another name|already|differs)|"code":\s*"diverged"|diverged/i,
    "The code may have changed under the run: its log has something else.", "when-an-invocation-fails"],
  [/^the answer was refused: /, "The server refused the function’s answer and has written nothing of it.", "the-answer"],
  [/is not registered/, "No deployment has this ID. The message waits until one is registered.", "delivery-guarantees"],
  [/connection refused|no such host|network is unreachable|dial tcp|i\/o timeout/,
    "The function could not be reached. That counts as no failure: it is tried again within a minute.", "delivery-guarantees"],
  [/EOF|connection reset|closed before an answer|broken pipe/,
    "The connection was closed before an answer: the function’s process may have died.", "delivery-guarantees"],
  [/not acknowledged before the lease expired|deadline exceeded|Client\.Timeout/,
    "No answer came in time. The function may have done its work: it is called again.", "delivery-guarantees"],
  [/ answered (401|403)/, "The function refused the call: it may not know the server’s signing key.", "signed-calls"],
  [/ answered \d{3}/, "The function answered with an error. Calls are repeated after growing pauses, until it is parked.", "when-an-invocation-fails"],
  [/^the server (that|was)|^timed out waiting for memory/, "The server ended the delivery, not the function.", "delivery-guarantees"],
];

// meaningOf returns what an error means, or null if it is not known.
export function meaningOf(error: string): Meaning | null {
  const found = meanings.find(([pattern]) => pattern.test(error));
  return found ? { text: found[1], anchor: found[2] } : null;
}

// contract returns the address of a paragraph of the contract.
export function contract(anchor: string): string {
  return `https://github.com/stepwell-dev/stepwell/blob/main/docs/function-contract.md#${anchor}`;
}
