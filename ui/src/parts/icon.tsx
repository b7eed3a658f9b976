// Glyphs: one shape for each state, so that none depends on its colour.
import type { Look } from "../lib/status";

const shapes: Record<Look, string> = {
  pending: "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0-11z",
  running: "M5 3.2l8 4.8l-8 4.8z",
  retrying: "M12.6 5.6A5.2 5.2 0 1 0 13.2 8.8M13 2.6v3.2h-3.2",
  waiting: "M4.5 2.5h7M4.5 13.5h7M5.2 2.7c0 4 5.6 3.6 5.6 5.3s-5.6 1.3-5.6 5.3M10.8 2.7c0 4-5.6 3.6-5.6 5.3s5.6 1.3 5.6 5.3",
  completed: "M3 8.6l3.4 3.4L13 4.6",
  failed: "M4 4l8 8M12 4l-8 8",
  cancelled: "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0-11zM4.2 11.8l7.6-7.6",
};

export function Glyph({ look }: { look: Look }) {
  return (
    <svg class={`glyph ${look}`} viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path d={shapes[look]} />
    </svg>
  );
}

// Status is a glyph and a word.
export function Status({ look, word }: { look: Look; word: string }) {
  return <span class="status"><Glyph look={look} />{word}</span>;
}

export function Logo() {
  return (
    <svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true" class="logo">
      <path d="M3 5.5h14M5 10h10M7 14.5h6" />
    </svg>
  );
}
