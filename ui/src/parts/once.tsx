// A secret that the server shows once: it stays until somebody says that it is kept.
import { Copy } from "./copy";

export function Once({ title, text, done }: { title: string; text: string; done: () => void }) {
  return (
    <section class="once" aria-label={title}>
      <strong>{title}. It is shown only now.</strong>
      <div class="command"><code>{text}</code><Copy text={text} label="Copy" what="it" /></div>
      <button type="button" onClick={done}>I have kept it</button>
    </section>
  );
}
