// Who votes in this browser: a name and roles, which it keeps.
import { computed } from "@preact/signals";
import { project } from "./location";
import { session } from "./session";
import { kept } from "./settings";

const typed = kept<string>("voter", "");
const roleList = kept<string>("voter-roles", "");

// voter is the name that a vote is given, at first that of the key.
export const voter = computed(() => typed.value || (session.value?.projects.find((p) => p.project === project.value)?.key ?? ""));
export const voterRoles = computed(() => roleList.value.split("\n").filter(Boolean));

export function setVoter(name: string): void {
  typed.value = name;
}

export function setRole(role: string, has: boolean): void {
  roleList.value = [...voterRoles.value.filter((r) => r !== role), ...(has ? [role] : [])].join("\n");
}

// me is what approvals may name the voter by; empty until somebody has said who votes here.
export const me = computed(() => [...(typed.value.trim() ? [typed.value.trim()] : []), ...voterRoles.value.map((r) => `role:${r}`)]);
