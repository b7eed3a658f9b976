export async function greeting(name: string) {
  'use step';
  return `hello ${name}`;
}

export async function shout(text: string) {
  'use step';
  return `${text.toUpperCase()}!`;
}
