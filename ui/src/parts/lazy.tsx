// Pages that are loaded when they are opened.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { readSession } from "../api";
import { freshness } from "../resource";
import { session } from "../session";
import { Empty, Loading } from "./notice";

type Load<P> = () => Promise<ComponentType<P>>;

// Lazy is a page that is loaded when it appears, or before.
export type Lazy<P> = ComponentType<P> & { load: () => Promise<void> };

// lazy returns a page whose program is loaded when it first appears. That fails if the server is away, or has another version
// by now: the names of files have hashes.
export function lazy<P extends object>(what: string, load: Load<P>): Lazy<P> {
  return later("main", what, load);
}

// lazyPart is lazy for a part of a page, such as a dialog.
export function lazyPart<P extends object>(what: string, load: Load<P>): Lazy<P> {
  return later("div", what, load);
}

// Why a program could not be loaded.
type Failure = "" | "away" | "new" | "odd";

async function whyFailed(): Promise<Failure> {
  try {
    const now = await readSession();
    return now.version === session.peek()?.version ? "odd" : "new";
  } catch {
    return "away";
  }
}

function later<P extends object>(Tag: "main" | "div", what: string, load: Load<P>): Lazy<P> {
  let loaded: ComponentType<P> | null = null;
  const fetched = async () => {
    loaded = await load();
  };
  function Later(props: P) {
    const ready = useSignal(loaded !== null);
    const failed = useSignal<Failure>("");
    const start = () => {
      failed.value = "";
      fetched().then(() => (ready.value = true), async () => (failed.value = await whyFailed()));
    };
    useEffect(() => {
      if (loaded) return void (ready.value = true);
      start();
    }, []);
    const answers = freshness.value === "live";
    useEffect(() => {
      if (answers && failed.peek() === "away") start();
    }, [answers]);
    if (failed.value) return <Tag class="page"><Failed why={failed.value} again={start} /></Tag>;
    if (!ready.value || !loaded) return <Tag class="page"><Loading what={what} /></Tag>;
    const Loaded = loaded;
    return <Loaded {...props} />;
  }
  return Object.assign(Later, { load: fetched });
}

function Failed({ why, again }: { why: Failure; again: () => void }) {
  return (
    <Empty title="This page could not be loaded">
      <p>{why === "away" ? "The server does not answer. The page appears when it does." : why === "new" ? "The server has a new version." : "The server answers, but does not have this page: it may have been built anew."}</p>
      {why === "away" ? <button type="button" onClick={again}>Try again</button>
        : <button type="button" onClick={() => location.reload()}>Load the dashboard again</button>}
    </Empty>
  );
}
