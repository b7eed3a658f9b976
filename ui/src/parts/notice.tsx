// What is empty, and what went wrong.
import type { ComponentChildren } from "preact";
import type { Problem } from "../lib/problem";
import { asksForKey, isTemporary, titleOf } from "../lib/problem";
import { lost } from "../session";
import { Glyph } from "./icon";
import { Age } from "./time";

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return <div class="empty"><h2>{title}</h2>{children}</div>;
}

// Trouble shows a failed request. What is on the screen stays beside it.
export function Trouble({ problem, retry }: { problem: Problem; retry?: () => void }) {
  if (asksForKey(problem) && lost.value) return null; // the page asks for a key
  return (
    <div class="trouble" role="alert">
      <Glyph look="failed" />
      <div>
        <strong>{titleOf(problem)}.</strong> {problem.message}
        {isTemporary(problem) && problem.shownAt > 0 && <> What is shown was read <Age at={new Date(problem.shownAt).toISOString()} />.</>}
        {problem.requestId && <div class="quiet small">request {problem.requestId}</div>}
      </div>
      {retry && <button type="button" onClick={retry}>Try again</button>}
    </div>
  );
}

// Fault is shown in place of a page that cannot be drawn.
export function Fault({ of, again }: { of: unknown; again: () => void }) {
  return (
    <Empty title="This page has a fault">
      <p>The data is safe: only its display failed. <span class="mono">{String(of)}</span></p>
      <button type="button" onClick={again}>Show it again</button>
    </Empty>
  );
}

export function Loading({ what }: { what: string }) {
  return <p class="loading" role="status">Reading {what} …</p>;
}
