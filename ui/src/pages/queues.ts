// The pages about what waits are loaded together: they share most of their parts.
export { Deployments } from "./deployments";
export { Queue } from "./queue";
export { Waiting } from "./waiting";
