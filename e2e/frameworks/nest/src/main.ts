import 'reflect-metadata';
import { NestFactory } from '@nestjs/core';
import { getWorld } from 'workflow/runtime';
import { AppModule } from './app.module.js';

const app = await NestFactory.create(AppModule, { rawBody: true });
await app.listen(process.env.PORT ?? 3000);
await getWorld();
