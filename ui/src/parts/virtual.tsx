// A list of which only the rows on the screen exist.
import type { ComponentChildren } from "preact";
import { useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { visibleRange, type Range } from "../lib/pages";

export interface VirtualProps {
  count: number;
  rowHeight: number;
  label: string;
  class?: string;
  // Scrolls to this row when it changes; -1 for nowhere.
  target?: number;
  // Stays at the end while the list grows, if it is there.
  follow?: boolean;
  onRange?: (r: Range) => void;
  // The list is a tree of this many rows, in which one, by its element's ID, is where the keyboard is.
  tree?: { active: string; onKeyDown: (e: KeyboardEvent) => void };
  row: (index: number) => ComponentChildren;
}

export function Virtual({ count, rowHeight, label, target = -1, follow = false, onRange, tree, row, ...rest }: VirtualProps) {
  const box = useRef<HTMLDivElement>(null);
  const view = useSignal({ top: 0, height: 600 });
  const atEnd = useRef(false);
  const measure = () => {
    const b = box.current;
    if (b) atEnd.current = b.scrollTop + b.clientHeight >= b.scrollHeight - 4;
    if (b && (b.scrollTop !== view.value.top || b.clientHeight !== view.value.height)) {
      view.value = { top: b.scrollTop, height: b.clientHeight };
    }
  };
  useLayoutEffect(() => {
    measure();
    const watch = new ResizeObserver(measure);
    watch.observe(box.current!);
    return () => watch.disconnect();
  }, []);
  useLayoutEffect(() => {
    const b = box.current;
    if (!b || target < 0) return;
    const top = target * rowHeight;
    if (top < b.scrollTop || top + rowHeight > b.scrollTop + b.clientHeight) b.scrollTop = top - b.clientHeight / 2;
    measure();
  }, [target, count > target]);
  useLayoutEffect(() => {
    if (follow && atEnd.current && target < 0) box.current!.scrollTop = box.current!.scrollHeight;
    measure();
  }, [count]);
  const range = visibleRange(view.value.top, view.value.height, rowHeight, count, 8);
  useEffect(() => onRange?.(range), [range.first, range.end, count]);
  const rows: ComponentChildren[] = [];
  for (let i = range.first; i < range.end; i++) rows.push(row(i));
  return (
    <div ref={box} class={`virtual ${rest.class ?? ""}`} onScroll={measure} tabIndex={0} role={tree ? "treegrid" : "group"} aria-label={label}
      aria-rowcount={tree && count} aria-activedescendant={tree?.active} onKeyDown={tree?.onKeyDown}>
      <div class="virtual-space" role="presentation" style={{ height: `${count * rowHeight}px` }}>
        <div class="virtual-rows" role="presentation" style={{ transform: `translateY(${range.first * rowHeight}px)` }}>{rows}</div>
      </div>
    </div>
  );
}
