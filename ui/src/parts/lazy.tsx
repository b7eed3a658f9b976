// Pages that are loaded when they are opened.
import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { Empty, Loading } from "./notice";

// lazy returns a component whose program is loaded when it first appears. That fails if the server has another version
// by now: the names of files have hashes.
export function lazy<P extends object>(what: string, load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return function Lazy(props: P) {
    const ready = useSignal(loaded !== null);
    const failed = useSignal(false);
    useEffect(() => {
      if (loaded) return;
      load().then((c) => { loaded = c; ready.value = true; }, () => (failed.value = true));
    }, []);
    if (failed.value) {
      return (
        <main class="page"><Empty title="This page could not be loaded">
          <p>The server may have a new version.</p>
          <button type="button" onClick={() => location.reload()}>Load the dashboard again</button>
        </Empty></main>
      );
    }
    if (!ready.value || !loaded) return <main class="page"><Loading what={what} /></main>;
    const Loaded = loaded;
    return <Loaded {...props} />;
  };
}
