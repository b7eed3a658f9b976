// Pages that are loaded when they are opened.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { connection } from "../live";
import { Empty, Loading } from "./notice";

type Load<P> = () => Promise<ComponentType<P>>;

// Lazy is a page that is loaded when it appears, or before.
export type Lazy<P> = ComponentType<P> & { load: () => Promise<void> };

// lazy returns a page whose program is loaded when it first appears. That fails if the server has another version
// by now: the names of files have hashes.
export function lazy<P extends object>(what: string, load: Load<P>): Lazy<P> {
  return later("main", what, load);
}

// lazyPart is lazy for a part of a page, such as a dialog.
export function lazyPart<P extends object>(what: string, load: Load<P>): Lazy<P> {
  return later("div", what, load);
}

function later<P extends object>(Tag: "main" | "div", what: string, load: Load<P>): Lazy<P> {
  let loaded: ComponentType<P> | null = null;
  const fetched = async () => {
    loaded = await load();
  };
  function Later(props: P) {
    const ready = useSignal(loaded !== null);
    const failed = useSignal(false);
    const start = () => {
      failed.value = false;
      fetched().then(() => (ready.value = true), () => (failed.value = true));
    };
    useEffect(() => {
      if (loaded) return void (ready.value = true);
      start();
    }, []);
    if (failed.value && connection.value !== "live") {
      return (
        <Tag class="page"><Empty title="This page could not be loaded">
          <p>The server does not answer.</p>
          <button type="button" onClick={start}>Try again</button>
        </Empty></Tag>
      );
    }
    if (failed.value) {
      return (
        <Tag class="page"><Empty title="This page could not be loaded">
          <p>The server has a new version.</p>
          <button type="button" onClick={() => location.reload()}>Load the dashboard again</button>
        </Empty></Tag>
      );
    }
    if (!ready.value || !loaded) return <Tag class="page"><Loading what={what} /></Tag>;
    const Loaded = loaded;
    return <Loaded {...props} />;
  }
  return Object.assign(Later, { load: fetched });
}
