// What the runs of the project need that have not ended, with their numbers: each selects them in the list.
import { call } from "../api";
import { formatCount, runs } from "../lib/counts";
import { needOf, needs, withNeed, type Filter } from "../lib/filter";
import { project } from "../location";
import { useResource } from "../resource";
import { reasonTopics } from "../runlist";

const weight = 4; // reads reasons of many runs, for all who ask within seconds

const titles = {
  stuck: "do not go on by themselves",
  retrying: "have failed at something, which is tried again",
  waiting: "wait for time, for other runs, for a slot, or for somebody",
};

export function Needs({ filter, change }: { filter: Filter; change: (f: Filter) => void }) {
  const read = useResource((signal) => call(project.value, "GET /v1/runs/needs", { signal }), [project.value], { on: reasonTopics, weight });
  const counts = read.data.value;
  return (
    <div class="segmented needs" role="group" aria-label="Need">
      {needs.map((need) => (
        <button type="button" aria-pressed={needOf(filter) === need} onClick={() => change(withNeed(filter, need))}
          title={counts ? `In the project, ${runs(counts[need])} ${titles[need]}` : `Runs that ${titles[need]}`}>
          {need} {counts && <span class="number">{formatCount(counts[need])}</span>}
        </button>
      ))}
    </div>
  );
}
