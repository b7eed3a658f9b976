import 'reflect-metadata';
import { Readable } from 'node:stream';
import { pathToFileURL } from 'node:url';
import { NestFactory } from '@nestjs/core';
import type { Request as Incoming, Response as Outgoing } from 'express';
import { getWorld } from 'workflow/runtime';
import { AppModule } from './app.module.js';

const load = (bundle: string) => import(pathToFileURL(`.nestjs/workflow/${bundle}.mjs`).href);

// bytes serves a bundle of the SDK. Its own controller passes only text on, and deliveries are binary.
function bytes(bundle: string) {
  return async (req: Incoming, res: Outgoing) => {
    await load('steps');
    const { POST } = await load(bundle);
    const body = req.method === 'POST' ? Readable.toWeb(req) : undefined;
    const init = { method: req.method, headers: req.headers, body, duplex: 'half' } as unknown as RequestInit;
    const answer: Response = await POST(new Request(`http://${req.headers.host}${req.originalUrl}`, init));
    res.status(answer.status).setHeaders(answer.headers).end(Buffer.from(await answer.arrayBuffer()));
  };
}

const app = await NestFactory.create(AppModule);
app.use('/.well-known/workflow/v1/flow', bytes('workflows'));
app.use('/.well-known/workflow/v1/step', bytes('steps'));
await app.listen(process.env.PORT ?? 3000);
await getWorld();
