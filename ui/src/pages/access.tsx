// Access: keys, signing keys, secrets, sessions, projects and the audit log.
import type { ComponentType } from "preact";
import { href, page, project } from "../location";
import { Empty } from "../parts/notice";
import { may, needs, operator } from "../session";
import { Audit } from "./audit";
import { Keys } from "./keys";
import { Projects, Secrets, Sessions } from "./secrets";
import { SigningKeys } from "./signing";

const tabs: Array<{ name: string; title: string; part: ComponentType; operators?: boolean }> = [
  { name: "keys", title: "Keys", part: Keys },
  { name: "signing", title: "Signing keys", part: SigningKeys },
  { name: "secrets", title: "Secrets", part: Secrets },
  { name: "sessions", title: "Sessions", part: Sessions },
  { name: "projects", title: "Projects", part: Projects, operators: true },
  { name: "audit", title: "Audit", part: Audit },
];

export function Access() {
  const tab = tabs.find((t) => t.name === (page.value.segments[1] ?? "keys"));
  const Part = tab?.part;
  return (
    <main class="page access">
      <header class="page-head"><h1>Access</h1><span class="quiet">Who may do what in {project.value}</span></header>
      {!may("admin") ? <Empty title="Only admins see this page"><p>{needs("admin")}</p></Empty> : <>
        <div class="tabs" role="tablist" aria-label="Parts of access">
          {tabs.filter((t) => !t.operators || (operator.value && project.value === "default")).map((t) => (
            <a role="tab" id={`tab-${t.name}`} aria-selected={t === tab} aria-controls="tab-panel" href={href(["access", t.name])}>{t.title}</a>
          ))}
        </div>
        <section id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab?.name}`}>
          {Part ? <Part key={project.value} /> : <Empty title="There is no such part" />}
        </section>
      </>}
    </main>
  );
}
