// The World's lists for the SDK's command line and dashboard (docs/protocol.md §2.7). The server checks the arguments.
const id = encodeURIComponent;
const BASE = '/v2/analytics';

/** The filter of a list of runs by values of their attributes. */
export function attributeFilter(attributes) {
  return attributes && Object.keys(attributes).length > 0 ? JSON.stringify(attributes) : undefined;
}

export function createAnalytics(http) {
  const inRun = (runId, list) => `${BASE}/runs/${id(runId)}/${list}`;
  const get = (path, { pagination, ...query } = {}) => http.get(path, { ...query, ...pagination });

  return {
    runs: {
      get: (runId) => http.get(`${BASE}/runs/${id(runId)}`),
      list: ({ attributes, ...params } = {}) => get(`${BASE}/runs`, { ...params, attributes: attributeFilter(attributes) }),
    },
    attributes: {
      list: (params) => get(`${BASE}/attributes`, params),
    },
    steps: {
      get: (runId, stepId) => http.get(`${inRun(runId, 'steps')}/${id(stepId)}`),
      list: ({ runId, ...params }) => get(inRun(runId, 'steps'), params),
    },
    events: {
      get: (runId, eventId) => http.get(`${inRun(runId, 'events')}/${id(eventId)}`),
      getMany: (runId, eventIds) =>
        http.post(`${inRun(runId, 'events')}/get-many`, { eventIds: [...new Set(eventIds)] }, { repeatable: true }),
      list: ({ runId, ...params }) => get(inRun(runId, 'events'), params),
      // beta.35 does not name the run.
      listByCorrelationId: ({ runId, ...params }) => get(runId ? inRun(runId, 'events') : `${BASE}/events`, params),
    },
    hooks: {
      get: (hookId, params) => get(`${BASE}/hooks/${id(hookId)}`, params),
      list: (params) => get(`${BASE}/hooks`, params),
    },
    waits: {
      get: (runId, waitId) => http.get(`${inRun(runId, 'waits')}/${id(waitId)}`),
      list: ({ runId, ...params }) => get(inRun(runId, 'waits'), params),
    },
  };
}
