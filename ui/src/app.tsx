// The dashboard.
import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useErrorBoundary, useLayoutEffect, useRef } from "preact/hooks";
import { base } from "./api";
import { titleOf } from "./lib/names";
import { pathOf } from "./lib/path";
import { follow, go, href, heading, page, project } from "./location";
import { load, lost, needs, role, session, sessionProblem, showsRuns } from "./session";
import { Frame, places } from "./parts/frame";
import { lazy, type Lazy } from "./parts/lazy";
import { Empty, Fault, Loading, Trouble } from "./parts/notice";
import { Runs } from "./pages/runs";
import { SignIn } from "./pages/signin";

// pages are the pages of a project by their first segment, apart from runs. They are loaded when they are opened.
const pages: Record<string, Lazy<object>> = {
  overview: lazy("overview", async () => (await import("./pages/numbers")).Overview),
  workflows: lazy("workflows", async () => (await import("./pages/numbers")).Workflows),
  flows: lazy("flows", async () => (await import("./pages/operations")).Flows),
  failures: lazy("failures", async () => (await import("./pages/numbers")).Failures),
  waiting: lazy("waiting", async () => (await import("./pages/operations")).Waiting),
  queue: lazy("queue", async () => (await import("./pages/operations")).Queue),
  schedules: lazy("schedules", async () => (await import("./pages/operations")).Schedules),
  triggers: lazy("triggers", async () => (await import("./pages/operations")).Triggers),
  collections: lazy("collections", async () => (await import("./pages/operations")).Collections),
  limits: lazy("limits", async () => (await import("./pages/operations")).Limits),
  deployments: lazy("deployments", async () => (await import("./pages/operations")).Deployments),
  servers: lazy("servers", async () => (await import("./pages/operations")).Servers),
  access: lazy("access", async () => (await import("./pages/operations")).Access),
  compare: lazy("compare", async () => (await import("./pages/numbers")).Compare),
};

// Pages of the role invoke, which sees no lists.
const Home = lazy("the page", async () => (await import("./pages/operations")).Home);
const Lookup = lazy<{ id: string }>("the run", async () => (await import("./pages/operations")).Lookup);

const RunPage = lazy<{ id: string; tab: string }>("the run", async () => (await import("./pages/onerun")).RunPage);

// started tells that the session and the page of the address have been loaded, at the same time. So the page and its frame
// appear together, and ask together for what they show.
const started = signal(false);

async function start(): Promise<void> {
  const [first = "", id] = page.peek().segments;
  const asked = first === "runs" ? (id ? RunPage : null) : Object.hasOwn(pages, first) ? pages[first] : null;
  await Promise.all([load(), asked?.load().catch(() => {})]); // the page says what is wrong, and tries again
  started.value = true;
}

// Route shows the page of the address. Another project has another page: nothing that was selected, typed or asked in one
// project is there in another.
function Route() {
  const [first = "", id, tab] = page.value.segments;
  const key = [project.value, first, first === "runs" ? id : ""].join("/");
  const [fault, again] = useErrorBoundary();
  const shown = useRef(key);
  useEffect(() => {
    if (shown.current !== key && fault) again();
    shown.current = key;
  }, [key]);
  if (fault) return <main class="page"><Fault of={fault} again={again} /></main>;
  if (!showsRuns()) {
    if (first === "overview") return <Home key={key} />;
    if (first === "runs" && id) return <Lookup key={key} id={id} />;
    if (first !== "waiting") return <main class="page"><Empty title="This page is not for your key"><p>{needs("metadata")}</p>
      <a class="button" href={href(["overview"])}>What your key may do</a></Empty></main>;
  }
  if (first === "runs") return id ? <RunPage key={key} id={id} tab={tab ?? "timeline"} /> : <Runs key={key} />;
  const Page = Object.hasOwn(pages, first) ? pages[first] : undefined;
  if (Page) return <Page key={key} />;
  return <main class="page"><Empty title="There is no such page"><p>Its address may be of another version.</p></Empty></main>;
}

// Over asks for a key above all, also above a form that is open. It cannot be closed but by signing in, or by going to
// another project.
function Over() {
  const element = useRef<HTMLDialogElement>(null);
  const show = () => element.current?.showModal();
  useLayoutEffect(show, []);
  return <dialog ref={element} class="over" aria-label="Your session is over" onCancel={(e) => e.preventDefault()} onClose={show}><SignIn again /></dialog>;
}

function App() {
  const s = session.value;
  const first = s?.projects[0]?.project;
  const incomplete = project.value === "" || page.value.segments.length === 0;
  const opened = project.value || first;
  useEffect(() => {
    if (incomplete && opened && s) go(pathOf(base, opened, "overview"), "replace");
  }, [incomplete, opened, s]);
  const shown = heading.value;
  useEffect(() => {
    const [kind, id] = page.value.segments;
    document.title = [shown || (kind === "workflows" && id && titleOf(id)) || id?.slice(-8) || places.find((p) => p.segment === kind)?.name, project.value, "Stepwell"].filter(Boolean).join(" · ");
  });
  if (!s) return sessionProblem.value ? <main class="page"><Trouble problem={sessionProblem.value} retry={load} /></main> : <main class="page"><Loading what="the session" /></main>;
  if (!started.value) return <main class="page"><Loading what="the page" /></main>;
  if (!lost.value && role.value === "" && (project.value !== "" || !first)) return <SignIn again={false} />;
  if (incomplete) return null;
  // The same elements with and without a session: what a page shows and what was typed stays.
  return (
    <>
      <div class={lost.value ? "dimmed" : ""} inert={lost.value}><Frame><Route /></Frame></div>
      {lost.value && <Over />}
    </>
  );
}

document.addEventListener("click", follow);
void start();
render(<App />, document.getElementById("app")!);
