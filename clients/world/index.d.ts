/** The World type of the app's own SDK version. */
export type World = Awaited<ReturnType<typeof import('workflow/runtime').getWorld>>;

/**
 * The World of a Stepwell server, configured from the environment: `STEPWELL_URL`, `STEPWELL_DEPLOYMENT_ID`, if the
 * server requires a key `STEPWELL_API_KEY`, and `STEPWELL_CLIENT` (`own`, the default, or `official`).
 * With `STEPWELL_APP_URL`, the app's base URL, it registers the app with the server in the background.
 *
 * @throws if a variable is missing or invalid, if the SDK is not installed or its version is not supported, or (the
 * official client of SDK 4) if `NODE_ENV` is `development`.
 */
export declare function createWorld(): World;

export default createWorld;
