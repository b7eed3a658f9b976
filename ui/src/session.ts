// Who is signed in, and what the role may do.
import { batch, computed, signal } from "@preact/signals";
import * as api from "./api";
import { project } from "./location";
import { Problem } from "./lib/problem";

export const session = signal<api.Session | null>(null);
// lost tells that the server has answered 401 in a project: the page asks for the key and then goes on.
export const lost = signal(false);
export const sessionProblem = signal<Problem | null>(null);

export const role = computed(() => session.value?.projects.find((p) => p.project === project.value)?.role ?? "");

export type Permission = "write" | "read" | "invoke" | "admin";

const allowed: Record<Permission, string[]> = {
  admin: ["admin"],
  write: ["admin", "write"],
  read: ["admin", "write", "read"],
  invoke: ["admin", "write", "invoke"],
};

// may reports whether the role has a permission. The server checks it again.
export function may(p: Permission): boolean {
  return allowed[p].includes(role.value);
}

// needs returns which roles have a permission, in words.
export function needs(p: Permission): string {
  return `This needs a key of the role ${allowed[p].join(" or ")}.`;
}

export async function load(): Promise<void> {
  try {
    session.value = await api.readSession();
    sessionProblem.value = null;
  } catch (err) {
    sessionProblem.value = err as Problem;
  }
}

// suspect is called when a request was answered 401. A sign-in in another tab changes the cookie under a request, so
// the session is read again before anybody is asked for a key.
export async function suspect(): Promise<void> {
  try {
    const now = await api.readSession();
    batch(() => {
      session.value = now;
      lost.value = role.value === "";
    });
  } catch {
    // The next request tries again.
  }
}

// enter opens the project of a key. It returns that project.
export async function enter(key: string): Promise<string> {
  const before = new Map(session.value?.projects.map((p) => [p.project, JSON.stringify(p)]));
  const now = await api.signIn(key);
  batch(() => {
    session.value = now;
    lost.value = !now.projects.some((p) => p.project === project.value) && lost.value;
  });
  return now.projects.find((p) => before.get(p.project) !== JSON.stringify(p))?.project ?? now.projects[0]?.project ?? "";
}

export async function leave(): Promise<void> {
  await api.signOut();
  session.value = null;
  lost.value = false;
  await load();
}
