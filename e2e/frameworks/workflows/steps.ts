export async function greeting(name: string) {
  'use step';
  return `hello ${name}`;
}

// call answers a webhook, as somebody else would.
export async function call(url: string, text: string) {
  'use step';
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ answer: `${text.toUpperCase()}!` }),
  });
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
}
