// The page of a run is loaded when a run is opened.
export { RunPage } from "./run";
