// The graph of a flow: a picture, and the same as a table for those who do not see it.
import { useMemo } from "preact/hooks";
import type { FlowGraph, FlowGraphStep, Reason } from "../api.gen";
import { tick } from "../clock";
import { afterOf, box, draw, itemsOf, stageOf, whatOf, whenOf, type Place } from "../lib/graph";
import { go } from "../location";
import { Glyph, Status } from "./icon";

interface GraphProps {
  graph: FlowGraph;
  // The address of what a run has of a step; missing for the graph of a version.
  of?: (s: FlowGraphStep) => string;
  // Why steps of the run are not done, by their IDs.
  reasons?: Map<string, Reason>;
}

const longest = 22; // characters of a line in a box

export function Graph({ graph, of, reasons }: GraphProps) {
  const shape = JSON.stringify([graph.deployment, graph.steps.length]);
  const drawn = useMemo(() => draw(graph), [shape]);
  const steps = new Map(graph.steps.map((s) => [s.id, s]));
  const { width, height } = drawn;
  return (
    <>
      <div class="graph" role="group" aria-label="Picture of the steps; the table after it says the same" tabIndex={0}>
        <svg viewBox={`-6 -6 ${width + 12} ${height + 12}`} width={width + 12} height={height + 12} aria-hidden="true">
          <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0l8 4l-8 4z" /></marker></defs>
          {drawn.lines.map((l) => (
            <path key={`${l.from} ${l.to}`} class={l.catch === undefined ? "line" : "line caught"} d={l.path} marker-end="url(#arrow)">
              <title>{l.catch === undefined ? `${l.to} needs ${l.from}` : `${l.to} if ${l.from} fails: ${l.catch}`}</title></path>
          ))}
          {drawn.places.map((p) => <Box key={p.step.id} place={p} step={steps.get(p.step.id)!} of={of} reason={reasons?.get(p.step.id)} />)}
        </svg>
      </div>
      <table class="list">
        <thead><tr>{of && <th>Stage</th>}<th>Step</th><th>Does</th><th>After</th><th>{of ? "Items" : "Has"}</th>{of && <th>Why it is not done</th>}</tr></thead>
        <tbody>{graph.steps.map((s) => (
          <tr key={s.id}>
            {of && <td><Status {...stageOf(s)} />{s.code && <span class="quiet mono"> {s.code}</span>}</td>}
            <td>{of ? <a class="strong" href={of(s)}>{s.id}</a> : <span class="strong">{s.id}</span>}</td>
            <td>{whatOf(s)}</td>
            <td class="detail">{afterOf(graph, s)}</td>
            <td>{of ? itemsOf(s) : [s.conditional && "a condition", s.undo && "an undo"].filter(Boolean).join(", ")}</td>
            {of && <td>{reasons?.get(s.id)?.sentence}</td>}
          </tr>
        ))}</tbody>
      </table>
    </>
  );
}

function Box({ place: p, step: s, of, reason }: { place: Place; step: FlowGraphStep; of: GraphProps["of"]; reason?: Reason }) {
  const stage = stageOf(s);
  const mark = s.undo && (!of || s.undoing);
  const second = of ? [stage.word, whenOf(reason, tick.value), itemsOf(s)].filter(Boolean).join(" · ") : whatOf(s);
  return (
    <g class={`box ${of ? stage.look : ""} ${s.conditional ? "conditional" : ""} ${of ? "open" : ""}`} transform={`translate(${p.x} ${p.y})`}
      onClick={of && (() => go(of(s)))}>
      <title>{[s.id, whatOf(s), of && stage.word, itemsOf(s), reason?.sentence].filter(Boolean).join("\n")}</title>
      <rect width={box.width} height={box.height} rx="7" />
      {of && <g transform="translate(11 8)"><Glyph look={stage.look} /></g>}
      <text x={of ? 32 : 11} y="20" class="name">{cut(s.id, longest - (of ? 3 : 0) - (mark ? 3 : 0))}</text>
      <text x="11" y="37">{cut(second, longest + 6)}</text>
      {mark && <text x={box.width - 20} y="20">↶</text>}
    </g>
  );
}

function cut(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
