// Buttons that copy.
import { signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

// copy puts a text on the clipboard and says so. There may be no clipboard, as over plain HTTP.
async function copy(text: string): Promise<string> {
  try {
    await navigator.clipboard.writeText(text);
    return "copied";
  } catch {
    return "no clipboard: select it";
  }
}

// Copy copies a text. A text that is long to make is made when it is asked for.
export function Copy({ text, label, what }: { text: string | (() => string | Promise<string>); label?: string; what: string }) {
  const done = useSignal("");
  const press = async () => {
    try {
      done.value = await copy(typeof text === "string" ? text : await text());
    } catch (err) {
      done.value = (err as Error).message;
    }
    setTimeout(() => (done.value = ""), 2000);
  };
  return (
    <button type="button" class={label ? "" : "icon"} onClick={press} title={`Copy ${what}`} aria-label={label ? undefined : `Copy ${what}`}>
      {done.value || label || <svg viewBox="0 0 16 16" width="13" height="13" aria-hidden="true" class="line">
        <path d="M5.5 5.5v-3h8v8h-3M2.5 5.5h8v8h-8z" /></svg>}
    </button>
  );
}

interface Pair {
  cli: string;
  curl: string;
}

// Commands shows the same action as a request and as a command line.
export function Commands({ open, ...pair }: Pair & { open?: boolean }) {
  return (
    <details class="commands" open={open}>
      <summary>Copy as curl or CLI</summary>
      <Both {...pair} />
    </details>
  );
}

function Both({ cli, curl }: Pair) {
  return (
    <>
      <div class="command"><code>{cli}</code><Copy text={cli} what="the command" /></div>
      <div class="command"><code>{curl}</code><Copy text={curl} what="the curl command" /></div>
    </>
  );
}

// also has what the parts of this page are as commands, by what they show.
const also = signal<ReadonlyMap<string, Pair>>(new Map());

// Also adds what a part of the page shows to the one place of the page for commands: see PageCommands.
export function Also({ what, cli, curl }: Pair & { what: string }) {
  useEffect(() => {
    also.value = new Map(also.peek()).set(what, { cli, curl });
    return () => {
      const left = new Map(also.peek());
      left.delete(what);
      also.value = left;
    };
  }, [what, cli, curl]);
  return null;
}

// PageCommands is Commands for a page whose parts can be copied as well.
export function PageCommands(pair: Pair) {
  return (
    <details class="commands">
      <summary>Copy as curl or CLI</summary>
      <Both {...pair} />
      {[...also.value].map(([what, of]) => <section key={what} aria-label={what}><h3>{what}</h3><Both {...of} /></section>)}
    </details>
  );
}
