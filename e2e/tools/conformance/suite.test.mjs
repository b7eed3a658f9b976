import { fileURLToPath } from 'node:url';
import { createTestSuite } from '@workflow/world-testing';

createTestSuite(fileURLToPath(new URL('world.mjs', import.meta.url)));
