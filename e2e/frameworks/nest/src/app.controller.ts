import { Body, Controller, HttpCode, Post } from '@nestjs/common';
import { start } from 'workflow/api';
import { greet } from './workflows/greet.js';

@Controller()
export class AppController {
  @Post('greet')
  @HttpCode(200)
  async greet(@Body() body: { name: string }) {
    const run = await start(greet, [body.name]);
    return { runId: run.runId, value: await run.returnValue };
  }
}
