// The pages for those who run a project are loaded together: they share most of their parts.
export { Access } from "./access";
export { Collections } from "./collections";
export { Deployments } from "./deployments";
export { Flows } from "./flows";
export { Home, Lookup } from "./home";
export { Limits } from "./limits";
export { Queue } from "./queue";
export { Schedules } from "./schedules";
export { Servers } from "./servers";
export { Triggers } from "./triggers";
export { Waiting } from "./waiting";
