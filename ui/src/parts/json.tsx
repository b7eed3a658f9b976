// A JSON value as a tree: every number as it was written, every text as its characters. Copies have all as it was written.
import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { formatBytes, openDepth, readable, sizeOf, treeRows, writeJson, type JsonValue, type TreeRow } from "../lib/jsontext";
import { Copy } from "./copy";
import { Virtual } from "./virtual";

const rowHeight = 20;
const shownText = 2000; // characters of one value
const firstLines = 2000; // that are open at first
const isSmall = (size: number) => size <= 200;

export function JsonTree({ value }: { value: JsonValue }) {
  const toggled = useSignal<ReadonlySet<string>>(new Set());
  const depth = useMemo(() => openDepth(value, isSmall, firstLines), [value]);
  const rows = useMemo(() => treeRows(value, (path, level, size) => (level < depth && isSmall(size)) !== toggled.value.has(path)),
    [value, depth, toggled.value]);
  const toggle = (path: string) => {
    const next = new Set(toggled.value);
    if (!next.delete(path)) next.add(path);
    toggled.value = next;
  };
  const height = Math.min(rows.length * rowHeight + 8, 480);
  return (
    <div class="tree" style={{ height: `${height}px` }}>
      <Virtual count={rows.length} rowHeight={rowHeight} label="JSON" row={(i) => <Row row={rows[i]!} toggle={toggle} />} />
    </div>
  );
}

function Row({ row, toggle }: { row: TreeRow; toggle: (path: string) => void }) {
  const size = sizeOf(row.value);
  return (
    <div class="tree-row" style={{ paddingLeft: `${row.level * 16}px` }} key={row.path}>
      {size > 0
        ? <button type="button" class="twist" aria-expanded={row.open} aria-label={`${row.label ?? "value"}`} onClick={() => toggle(row.path)}>
            {row.open ? "▾" : "▸"}</button>
        : <span class="twist" />}
      {row.label !== null && <span class="key">{row.label}<span class="quiet">: </span></span>}
      <Scalar row={row} size={size} />
      <span class="row-copy"><Copy text={() => writeJson(row.value)} what={`the value of ${row.path}`} /></span>
    </div>
  );
}

function Scalar({ row, size }: { row: TreeRow; size: number }) {
  const v = row.value;
  if (v.kind === "array") return <span class="quiet">{size === 0 ? "[]" : `[${size}]`}</span>;
  if (v.kind === "object") return <span class="quiet">{size === 0 ? "{}" : `{${size}}`}</span>;
  const rest = v.text.length - shownText;
  return <><span class={v.kind}>{readable(v.text.slice(0, shownText))}</span>
    {rest > 0 && <span class="quiet"> … {formatBytes(rest)} more: copy or Text</span>}</>;
}
