// The pages about many runs are loaded together: they share most of their parts.
export { Compare } from "./compare";
export { Failures } from "./failures";
export { Overview } from "./overview";
export { Workflows } from "./workflows";
