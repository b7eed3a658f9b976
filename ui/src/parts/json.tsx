// A JSON value as a tree: every number as it was written, every text as its characters. Copies have all as it was written.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { parentsOf, piecesOf, search, type Place } from "../lib/jsonsearch";
import { formatBytes, openDepth, readable, sizeOf, treeRows, writeJson, type JsonValue, type TreeRow } from "../lib/jsontext";
import { Copy } from "./copy";
import { Virtual } from "./virtual";

const rowHeight = 20;
const shownText = 2000; // characters of one value
const firstLines = 2000; // that are open at first
const most = { lines: 100, matches: 10_000 };
const isSmall = (size: number) => size <= 200;

// JsonTree shows so many lines at first.
export function JsonTree({ value, lines = 24 }: { value: JsonValue; lines?: number }) {
  const opened = useSignal<ReadonlyMap<string, boolean>>(new Map()); // what somebody has opened or closed, by path
  const words = useSignal("");
  const at = useSignal<Place | null>(null);
  const all = useSignal(false);
  const depth = useMemo(() => openDepth(value, isSmall, firstLines), [value]);
  const searches = useMemo(() => openDepth(value, () => true, 20) < 3, [value]); // else one sees it all
  const rows = useMemo(() => treeRows(value, (path, level, size) => opened.value.get(path) ?? (level < depth && isSmall(size))),
    [value, depth, opened.value]);
  const open = (changes: Array<[string, boolean]>) => (opened.value = new Map([...opened.value, ...changes]));
  const go = (to: Place | null) => {
    at.value = to;
    if (to) open(parentsOf(to).map((path) => [path, true]));
  };
  const shown = Math.min(rows.length, all.value ? most.lines : lines);
  return (
    <>
      {searches && <Search value={value} words={words.value} type={(text) => (words.value = text)} go={go} />}
      <div class="tree" style={{ height: `${shown * rowHeight + 8}px` }}>
        <Virtual count={rows.length} rowHeight={rowHeight} label="JSON" target={at.value ? rows.findIndex((r) => r.path === at.value!.path) : -1}
          row={(i) => <Row row={rows[i]!} words={words.value} found={rows[i]!.path === at.value?.path} open={open} />} />
      </div>
      {shown < rows.length && !all.value && <button type="button" class="link" onClick={() => (all.value = true)}>
        Show {rows.length > most.lines ? "more" : "all"} of {rows.length.toLocaleString("en")} lines</button>}
    </>
  );
}

interface SearchProps {
  value: JsonValue;
  words: string;
  type: (words: string) => void;
  go: (to: Place | null) => void;
}

// Search finds the places that have the words. It searches a little at a time, so that the page stays alive.
function Search({ value, words, type, go }: SearchProps) {
  const found = useSignal<Place[]>([]);
  const done = useSignal(true);
  const at = useSignal(0);
  useEffect(() => {
    const places: Place[] = [];
    const steps = search(value, words);
    let timer = 0;
    const look = () => {
      const began = performance.now();
      let step;
      do {
        step = steps.next();
        if (step.value) places.push(step.value);
      } while (!step.done && places.length < most.matches && performance.now() - began < 8);
      done.value = step.done === true || places.length >= most.matches;
      if (found.value.length === 0 && places.length > 0) go(places[0]!);
      found.value = [...places];
      if (!done.value) timer = window.setTimeout(look);
    };
    at.value = 0;
    found.value = [];
    done.value = words === "";
    go(null);
    if (words) timer = window.setTimeout(look, 100);
    return () => clearTimeout(timer);
  }, [value, words]);
  const count = found.value.length;
  const turn = (by: number) => {
    if (count === 0) return;
    at.value = (at.value + by + count) % count;
    go(found.value[at.value]!);
  };
  const keys = (e: KeyboardEvent) => {
    if (e.key === "Enter") turn(e.shiftKey ? -1 : 1);
    else if (e.key === "Escape") type("");
    else return;
    e.preventDefault();
    e.stopPropagation();
  };
  const of = `${count.toLocaleString("en")}${done.value ? count >= most.matches ? "+" : "" : " …"}`;
  return (
    <div class="json-search" role="search">
      <input type="search" aria-label="Search in the value" placeholder="Search" spellcheck={false} value={words} onInput={(e) => type(e.currentTarget.value)} onKeyDown={keys} />
      <span class="quiet" role="status">{words && (count > 0 ? `${(at.value + 1).toLocaleString("en")} of ${of}` : done.value ? "not found" : "searching …")}</span>
      {count > 0 && <><button type="button" class="icon" aria-label="Previous match" onClick={() => turn(-1)}>↑</button>
        <button type="button" class="icon" aria-label="Next match" onClick={() => turn(1)}>↓</button></>}
    </div>
  );
}

interface RowProps {
  row: TreeRow;
  words: string;
  found: boolean;
  open: (changes: Array<[string, boolean]>) => void;
}

function Row({ row, words, found, open }: RowProps) {
  const size = sizeOf(row.value);
  const inside = <>
    {row.label !== null && <span class="key"><Marked text={row.label} words={words} /><span class="quiet">: </span></span>}
    <Value row={row} size={size} words={words} /></>;
  return (
    <div class={`tree-row${found ? " found" : ""}`} style={{ paddingLeft: `${row.level * 16}px` }} key={row.path}>
      {size > 0
        ? <button type="button" class="part" aria-expanded={row.open} onClick={() => open([[row.path, !row.open]])}>
            <span class="twist" aria-hidden="true">{row.open ? "▾" : "▸"}</span>{inside}</button>
        : <><span class="twist" />{inside}</>}
      <span class="row-copy"><Copy text={() => writeJson(row.value)} what={`the value of ${row.path}`} /></span>
    </div>
  );
}

function Value({ row, size, words }: { row: TreeRow; size: number; words: string }) {
  const v = row.value;
  if (v.kind === "array") return <span class="quiet">{size === 0 ? "[]" : `[${size}]`}</span>;
  if (v.kind === "object") return <span class="quiet">{size === 0 ? "{}" : `{${size}}`}</span>;
  const rest = v.text.length - shownText;
  return <><span class={v.kind}><Marked text={readable(words ? v.text : v.text.slice(0, shownText))} words={words} /></span>
    {rest > 0 && <span class="quiet"> … {formatBytes(rest)} more: copy or Text</span>}</>;
}

// Marked shows a text with what was searched for.
function Marked({ text, words }: { text: string; words: string }) {
  return <>{piecesOf(text, words, shownText).map((p) => (p.found ? <mark>{p.text}</mark> : p.text))}</>;
}
