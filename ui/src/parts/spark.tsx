// A small chart: a bar for each part of a time. What failed is the lower part of a bar, and hatched.

export interface Bar {
  all: number;
  failed: number;
}

const step = 4;
const height = 20;

// Spark shows bars on a scale of their own. The label says in words what they count.
export function Spark({ bars, label }: { bars: Bar[]; label: string }) {
  const most = Math.max(1, ...bars.map((b) => Math.max(b.all, b.failed)));
  const high = (n: number) => (n === 0 ? 0 : Math.max(1.5, (n / most) * height));
  return (
    <svg class="spark" role="img" aria-label={label} width={bars.length * step} height={height} viewBox={`0 0 ${bars.length * step} ${height}`}>
      <title>{label}</title>
      <line x1="0" x2={bars.length * step} y1={height - 0.5} y2={height - 0.5} />
      {bars.map((b, i) => (
        <>
          <rect x={i * step} y={height - high(b.all)} width={step - 1} height={high(b.all)} />
          {b.failed > 0 && <rect class="bad" x={i * step} y={height - high(b.failed)} width={step - 1} height={high(b.failed)} />}
        </>
      ))}
    </svg>
  );
}
