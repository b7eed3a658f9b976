/** The World type of the app's own SDK version. */
export type World = Awaited<ReturnType<typeof import('workflow/runtime').getWorld>>;

/**
 * The World of a Stepwell server, configured from the environment: `STEPWELL_URL`,
 * `STEPWELL_DEPLOYMENT_ID` and, where the server asks for one, `STEPWELL_API_KEY`.
 *
 * @throws when a variable is missing, when the SDK is not installed or of a version that this package does
 * not know, or (SDK 4) when `NODE_ENV` is `development`.
 */
export declare function createWorld(): World;

export default createWorld;
