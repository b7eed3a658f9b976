// Access: keys, secrets, signing keys, sessions and the audit log.

export function Access() {
  return <main class="page"><header class="page-head"><h1>Access</h1></header></main>;
}
