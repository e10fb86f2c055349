// SPDX-License-Identifier: Apache-2.0
/*
 * Records the Vercel AI SDK's own tracing, with content and without (recordInputs and recordOutputs false).
 *
 * With node 22, in a folder of its own outside the repository:
 *
 *     npm install ai@6.0.326 zod@4.6.7 @opentelemetry/api@1.9.1 @opentelemetry/sdk-trace-base@2.12.1 \
 *         @opentelemetry/resources@2.12.1 @opentelemetry/context-async-hooks@2.12.1
 *     node PATH/TO/tests/recorders/record_vercel_ai.mjs
 *
 * and once more, in another folder, with ai@7.0.173 and @ai-sdk/otel@1.0.173. The packages are those of the working folder.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(path.join(process.cwd(), 'recorder.js'));
const { generateText, registerTelemetry, simulateReadableStream, stepCountIs, streamText, tool } = require('ai');
const mocks = require('ai/test');
const { z } = require('zod');
const { context, trace } = require('@opentelemetry/api');
const { BasicTracerProvider, SimpleSpanProcessor } = require('@opentelemetry/sdk-trace-base');
const { resourceFromAttributes } = require('@opentelemetry/resources');
const { AsyncLocalStorageContextManager } = require('@opentelemetry/context-async-hooks');

const version = name => JSON.parse(readFileSync(path.join(process.cwd(), 'node_modules', name, 'package.json'))).version;
const MAJOR = Number(version('ai').split('.')[0]);
const DATA = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', 'data', 'recorded');

const REFUND = ['create_refund', { order_id: 'o1', amount_cents: 500 }];
const DOCS = ['search_docs', { query: 'refund policy' }];
const RATE = ['get_rate', { currency: 'EUR' }];

// turns: the calls that the model proposes, turn by turn; does: what the body of create_refund does each
// time it runs; bare: also without content; once: tells of the framework, not of its tracing, so recorded with version 6 alone.
const SCENARIOS = [
  { name: 's01_ok' },
  { name: 's01b_returns_nothing', does: ['nothing'], bare: false },
  { name: 's02_commit_then_502', does: ['commit_raise'] },
  { name: 's03_bad_json_args', turns: [[['create_refund', '{"order_id": "o1", "amount_ce']]], once: true },
  { name: 's04_schema_invalid', turns: [[['create_refund', { order_id: 'o1' }]]], once: true, notes: 'missing field' },
  { name: 's04b_wrong_type', turns: [[['create_refund', { order_id: 'o1', amount_cents: 'lots' }]]], notes: 'wrong type' },
  { name: 's05_unknown_tool', turns: [[['delete_everything', { x: 1 }]]], bare: false },
  { name: 's06_retry_new_id', turns: [[REFUND], [REFUND]], does: ['commit_raise', 'ok'], bare: false },
  { name: 's08_fanout', turns: [[REFUND, DOCS, RATE]], bare: false },
  { name: 's09_abort', does: ['commit_hang'], abort: true, notes: 'abortSignal after 0.3 s, which the body heeds' },
  { name: 's09b_abort_tool_commits_later', does: ['late_commit'], abort: true, bare: false, notes: 'abortSignal after 0.3 s, which the body ignores: it commits at 0.8 s' },
  { name: 's10d_tool_returns_error_string', does: ['error_text'], once: true },
  { name: 's16_streamed', stream: true },
  { name: 's16c_streamed_abort', stream: true, does: ['commit_hang'], abort: true, bare: false, notes: 'abortSignal after 0.3 s, which the body heeds' },
];

const sleep = ms => new Promise(resolve => setTimeout(resolve, ms));
const nano = () => Math.round(Date.now() * 1e6);

let spans = [], requested = [], executed = [];

// the model

function model(scenario) {
  const turns = [...(scenario.turns ?? [[REFUND]])];
  const parts = () => turns.length === 0 ? [{ type: 'text', text: 'done' }] : turns.shift().map(([name, args]) => {
    const toolCallId = `call_lab_c${requested.length + 1}`;
    requested.push({ tool: name, id: toolCallId, args });
    return { type: 'tool-call', toolCallId, toolName: name, input: typeof args === 'string' ? args : JSON.stringify(args) };
  });
  const usage = {
    inputTokens: { total: 11, noCache: 11, cacheRead: undefined, cacheWrite: undefined },
    outputTokens: { total: 7, text: 7, reasoning: undefined },
  };
  const finish = content => content[0].type === 'text' ? { unified: 'stop', raw: 'stop' } : { unified: 'tool-calls', raw: 'tool_calls' };
  const chunk = part => part.type === 'text'
    ? [{ type: 'text-start', id: 't' }, { type: 'text-delta', id: 't', delta: part.text }, { type: 'text-end', id: 't' }]
    : [{ type: 'tool-input-start', id: part.toolCallId, toolName: part.toolName },
       { type: 'tool-input-delta', id: part.toolCallId, delta: part.input }, { type: 'tool-input-end', id: part.toolCallId }, part];
  const Mock = mocks[MAJOR > 6 ? 'MockLanguageModelV4' : 'MockLanguageModelV3'];
  return new Mock({
    provider: 'lab', modelId: 'lab-fake-1',
    doGenerate: async () => {
      const content = parts();
      return { content, finishReason: finish(content), usage, warnings: [] };
    },
    doStream: async () => {
      const content = parts();
      const end = { type: 'finish', finishReason: finish(content), usage };
      return { stream: simulateReadableStream({ chunks: [{ type: 'stream-start', warnings: [] }, ...content.flatMap(chunk), end] }) };
    },
  });
}

// the tools

async function body(name, args, { toolCallId }, act) {
  const entry = {
    tool: name, args, call_id_seen_by_tool_or_null: toolCallId, side_effect_committed: false, executed: true,
    outcome: 'process died / not finished', start_unix_nano: nano(), commit_unix_nano: null, end_unix_nano: null,
  };
  executed.push(entry);
  try {
    const answer = await act(entry);
    entry.outcome = 'ok';
    return answer;
  } catch (error) {
    entry.outcome = error.name === 'AbortError' ? 'cancelled' : 'raised';
    throw error;
  } finally {
    entry.end_unix_nano = nano();
  }
}

function tools(scenario) {
  const does = [...(scenario.does ?? [])];
  const refund = (args, options) => body('create_refund', args, options, async entry => {
    const act = does.shift() ?? 'ok';
    if (act === 'late_commit') await sleep(800);
    Object.assign(entry, { side_effect_committed: true, commit_unix_nano: nano() });
    if (act === 'commit_raise') throw new Error('502 Bad Gateway on response leg');
    if (act === 'commit_hang') {
      await new Promise((_, reject) => options.abortSignal.addEventListener('abort', () => reject(options.abortSignal.reason)));
    }
    if (act === 'nothing') return undefined;
    return act === 'error_text' ? 'ERROR: 502 Bad Gateway, the refund may have failed' : `refunded ${args.order_id}`;
  });
  const all = {
    create_refund: tool({ description: 'Refund an order.', inputSchema: z.object({ order_id: z.string(), amount_cents: z.number().int() }), execute: refund }),
    search_docs: tool({ description: 'Search the documents.', inputSchema: z.object({ query: z.string() }),
      execute: (args, options) => body('search_docs', args, options, () => sleep(20).then(() => 'refunds within 30 days')) }),
    get_rate: tool({ description: 'The exchange rate of a currency.', inputSchema: z.object({ currency: z.string() }),
      execute: (args, options) => body('get_rate', args, options, () => sleep(10).then(() => '1.08')) }),
  };
  return scenario.name.includes('fanout') ? all : { create_refund: all.create_refund };
}

// one scenario

async function run(scenario, content) {
  const telemetry = { isEnabled: true, functionId: 'refunder', recordInputs: content, recordOutputs: content };
  const abort = new AbortController();
  if (scenario.abort) setTimeout(() => abort.abort(), 300);
  const options = {
    model: model(scenario), tools: tools(scenario), prompt: 'refund order o1', stopWhen: stepCountIs(5), maxRetries: 0,
    abortSignal: abort.signal, [MAJOR > 6 ? 'telemetry' : 'experimental_telemetry']: telemetry, onError: () => {},
  };
  await (scenario.stream ? streamText(options).consumeStream({ onError: () => {} }) : generateText(options));
}

function match() {
  const left = [...executed];
  return requested.map(ask => {
    const entry = left.find(e => e.call_id_seen_by_tool_or_null === ask.id);
    return { ...(entry ?? { tool: ask.tool, args: ask.args, call_id_seen_by_tool_or_null: null, side_effect_committed: false,
      executed: false, outcome: 'never_executed' }), model_call_id: ask.id };
  });
}

async function record(content) {
  const folder = path.join(DATA, `vercel-ai${MAJOR}__native${content ? '' : '__nocontent'}`);
  mkdirSync(folder, { recursive: true });
  const truth = [];
  for (const scenario of SCENARIOS.filter(s => s.once ? content && MAJOR === 6 : content || s.bare !== false)) {
    [spans, requested, executed] = [[], [], []];
    let escaped = null;
    try { await run(scenario, content); } catch (error) { escaped = `${error.name}: ${error.message}`.slice(0, 200); }
    const returned = nano();
    await sleep(scenario.does?.includes('late_commit') ? 1000 : 50);
    const calls = match();
    console.log(`${path.basename(folder)}/${scenario.name}: ${spans.length} spans, ${JSON.stringify(calls.map(c => [c.tool, c.outcome]))}, ${escaped}`);
    writeFileSync(path.join(folder, `${scenario.name}.jsonl`), otlpLines(spans).map(line => line + '\n').join(''));
    truth.push({
      scenario: scenario.name, file: `${scenario.name}.jsonl`, framework: `vercel-ai${MAJOR}`, framework_version: version('ai'),
      instrumentation: 'native', instrumentation_version: version(MAJOR > 6 ? '@ai-sdk/otel' : 'ai'),
      sdk_version: `js ${version('@opentelemetry/sdk-trace-base')}`, content_capture: content, tool_calls: calls,
      total_commits: calls.filter(c => c.side_effect_committed).length, model_requested: requested, http_received: [],
      escaped_exception: escaped, caller_returned_unix_nano: returned, spans: spans.length, notes: scenario.notes ?? '',
    });
  }
  writeFileSync(path.join(folder, 'truth.json'), '[\n' + truth.map(e => JSON.stringify(e)).join(',\n') + '\n]\n');
}

// OTLP/JSON

function otlpLines(ended) {
  const groups = [];
  for (const span of ended) {
    const last = groups.at(-1);
    if (last?.[0].instrumentationScope.name === span.instrumentationScope.name) last.push(span); else groups.push([span]);
  }
  return groups.map(group => JSON.stringify({ resourceSpans: [{
    resource: { attributes: attributes(group[0].resource.attributes) },
    scopeSpans: [{ scope: { name: group[0].instrumentationScope.name, version: group[0].instrumentationScope.version || undefined }, spans: group.map(otlpSpan) }],
  }] }));
}

function otlpSpan(span) {
  const time = ([seconds, nanos]) => `${seconds}${String(nanos).padStart(9, '0')}`;
  return {
    traceId: span.spanContext().traceId, spanId: span.spanContext().spanId, parentSpanId: span.parentSpanContext?.spanId,
    name: span.name, kind: span.kind + 1, startTimeUnixNano: time(span.startTime), endTimeUnixNano: time(span.endTime),
    attributes: attributes(span.attributes),
    events: span.events.length ? span.events.map(e => ({ timeUnixNano: time(e.time), name: e.name, attributes: attributes(e.attributes ?? {}) })) : undefined,
    droppedAttributesCount: span.droppedAttributesCount || undefined,
    status: { message: span.status.message || undefined, code: span.status.code || undefined }, flags: 256,
  };
}

const attributes = object => Object.entries(object).filter(([, v]) => v != null).map(([key, v]) => ({ key, value: value(v) }));

function value(v) {
  if (typeof v === 'boolean') return { boolValue: v };
  if (typeof v === 'number') return Number.isInteger(v) ? { intValue: String(v) } : { doubleValue: v };
  if (Array.isArray(v)) return { arrayValue: { values: v.map(value) } };
  return { stringValue: short(v) };
}

/** Without this machine's folders, and of a stack trace only the message and its first frame. */
function short(text) {
  const frames = text.split('\n').filter(line => /^\s+at /.test(line));
  const dropped = new Set(frames.slice(1));
  return text.split('\n').filter(line => !dropped.has(line)).join('\n')
    .replace(/(file:\/\/)?\/[^\s"'()]*?\/(node_modules|tests\/recorders)\//g, '$2/');
}

context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
trace.setGlobalTracerProvider(new BasicTracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'recorder' }),
  spanProcessors: [new SimpleSpanProcessor({ export: (batch, done) => { spans.push(...batch); done({ code: 0 }); }, shutdown: async () => {} })],
}));
if (MAJOR > 6) registerTelemetry(new (require('@ai-sdk/otel').OpenTelemetry)());
process.on('unhandledRejection', () => {});
await record(true);
await record(false);
