// The dialogs that are loaded when one of them is opened first: together, so that they share what they have in common.
export { Palette } from "../parts/palette";
export { Bulk } from "./bulk";
export { Start } from "./start";
export { NoMatch } from "./nomatch";
