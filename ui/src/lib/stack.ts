// Errors as text: which of their lines are frames of a stack, and which of those are of the user's code.

// Line is a line of an error. Lines of libraries and of the language are not the user's own.
export interface Line {
  text: string;
  own: boolean;
}

// A frame of JavaScript or Java, of Python, and the second line of one of Go.
const frame = /^\s+at \S|^\s+File ".*", line \d+|^\s+\S*\.go:\d+/;
const goPlace = /^\s+\S*\.go:\d+/;
const pythonPlace = /^\s+File ".*", line \d+/;
const foreign = [
  /node_modules[\\/]|\bnode:|<anonymous>|\[native code\]|\(native\)/, // JavaScript
  /^\s+at (?:java|javax|jdk|sun|kotlin|scala|org\.springframework)\./,
  /site-packages|dist-packages|[\\/]lib[\\/]python\d|<frozen /,
  // Go: modules have a version, and the first part of a standard package has no dot.
  /@v\d+\.|[\\/](?:pkg[\\/]mod|go[\\/]src|go\d[\d.]*[\\/]src)[\\/]|^\s+[a-z]\w*\/[\w/]*\.go:\d+/,
];

// isStack reports whether a text has frames of a stack.
export function isStack(text: string): boolean {
  return text.split("\n").some((line) => frame.test(line));
}

// linesOf returns the lines of an error. A frame of two lines is one's own, or not, with both: Go has the place below the
// function, Python the code below the place.
export function linesOf(text: string): Line[] {
  const lines = text.replace(/\r?\n$/, "").split(/\r?\n/).map((t) => ({ text: t, own: !isForeign(t) }));
  lines.forEach((line, i) => {
    const next = lines[i + 1];
    if (!next) return;
    if (goPlace.test(next.text)) line.own = next.own;
    if (pythonPlace.test(line.text) && !frame.test(next.text)) next.own = line.own;
  });
  return lines;
}

function isForeign(line: string): boolean {
  return frame.test(line) && foreign.some((f) => f.test(line));
}
