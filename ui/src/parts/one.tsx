// The page of one thing that a project has, such as a schedule: what it is called, how it stands, and what one can do.
import type { ComponentChildren } from "preact";
import type { JsonValue } from "../lib/jsontext";
import type { State } from "../lib/status";
import { go, href } from "../location";
import type { Resource } from "../resource";
import { may } from "../session";
import { useKeys } from "../shortcuts";
import { PageCommands } from "./copy";
import { Status } from "./icon";
import { JsonTree } from "./json";
import { Empty, Loading, Trouble } from "./notice";

interface OneProps<T> {
  read: Resource<T>;
  // The list that has it: the segment of its address, and its title.
  place: string;
  title: string;
  // What it is, such as "schedule", and what it is called.
  what: string;
  name: string;
  state: (of: T) => State;
  actions: (of: T) => ComponentChildren;
  // The same as a command and as a request.
  cli: string;
  curl: string;
  // What is shown once it is read.
  facts: (of: T) => ComponentChildren;
  // What is shown instead if there is none.
  missing?: ComponentChildren;
  // What is read by itself.
  children?: ComponentChildren;
}

export function One<T>({ read, place, title, what, name, state, actions, cli, curl, facts, missing, children }: OneProps<T>) {
  useKeys({ u: () => go(href([place])) });
  if (read.problem.value?.status === 404) {
    return (
      <main class="page">{missing ?? <Empty title={`There is no ${what} with this name`}><p class="mono">{name}</p>
        <a class="button" href={href([place])}>All {place}</a></Empty>}</main>
    );
  }
  const of = read.data.value;
  return (
    <main class={`page one ${place}`}>
      <header class="run-head">
        <nav class="crumbs" aria-label="Path"><a href={href([place])}>{title}</a></nav>
        <div class="run-title"><h1>{name}</h1>
          {of && <span class={`pill ${state(of).look}`}><Status {...state(of)} /></span>}
          {of && actions(of)}
        </div>
        <PageCommands cli={cli} curl={curl} />
      </header>
      {read.problem.value && <Trouble problem={read.problem.value} retry={read.refresh} />}
      {!of && !read.problem.value && <Loading what={`the ${what}`} />}
      {of && facts(of)}
      {children}
    </main>
  );
}

// Fact is a name and a value; without a value it is not shown.
export type Fact = [name: string, value: ComponentChildren];

export function Facts({ facts }: { facts: Fact[] }) {
  return <dl class="facts">{facts.filter(([, value]) => value).map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>;
}

// Input is what runs are started with. Not every role sees it.
export function Input({ of, none }: { of: JsonValue | undefined; none?: string }) {
  if (may("read") && !of && !none) return null;
  return (
    <><h2 class="gap">Input of its runs</h2>
      {of ? <JsonTree value={of} /> : <p class="quiet">{may("read") ? none : "Not shown to keys of the role metadata."}</p>}</>
  );
}
