// Each virtual user has a connection, sends at its share of the rate, and awaits the last echoes.
import exec from 'k6/execution';
import { Counter, Trend } from 'k6/metrics';
import ws from 'k6/ws';

const CONNECTIONS = Number(__ENV.CONNECTIONS);
const DURATION_S = Number(__ENV.DURATION_S);
const MESSAGE_BYTES = Number(__ENV.MESSAGE_BYTES);
// The JSON of uwebsocket-benchmark's servers, which each of them answers several times.
const IS_AMPLIFIED = __ENV.PAYLOAD === 'amplify';
const REPLIES = IS_AMPLIFIED ? Number(__ENV.REPLIES) : 1;
const PERIOD_MS = (1000 * CONNECTIONS) / Number(__ENV.RATE);
const MESSAGES = Math.max(1, Math.round((DURATION_S * 1000) / PERIOD_MS));
// How long the last echoes are awaited.
const DRAIN_MS = 2000;

const sent = new Counter('sent');
const received = new Counter('received');
const latency = new Trend('latency_us');

export const options = {
  scenarios: {
    latency: {
      executor: 'per-vu-iterations',
      vus: CONNECTIONS,
      iterations: 1,
      maxDuration: `${DURATION_S + 20}s`,
    },
  },
  summaryTrendStats: ['avg', 'p(50)', 'p(90)', 'p(99)', 'max'],
};

// The only clock that k6 has with more than milliseconds.
const now = () => exec.instance.currentTestRunDuration * 1000;

export default function () {
  ws.connect(__ENV.URL, {}, (socket) => {
    // Replies come in the order of the messages.
    const due = [];
    let replies = 0;
    let left = MESSAGES;
    const onReply = () => {
      replies += 1;
      if (replies < REPLIES) return;
      replies = 0;
      latency.add(now() - due.shift());
      received.add(1);
      if (left === 0 && due.length === 0) socket.close();
    };
    socket.on('message', onReply);
    socket.on('binaryMessage', onReply);
    socket.on('open', () => {
      // The first messages of all connections are spread over a period.
      const first = (PERIOD_MS * (exec.vu.idInTest - 1)) / CONNECTIONS;
      socket.setTimeout(() => {
        send();
        if (left > 0) socket.setInterval(() => left > 0 && send(), PERIOD_MS);
        socket.setTimeout(() => socket.close(), DURATION_S * 1000 + DRAIN_MS);
      }, first + 1);
    });
    function send() {
      left -= 1;
      due.push(now());
      socket.send(message(left));
      sent.add(1);
    }
  });
}

function message(number) {
  if (!IS_AMPLIFIED) return String(number).padEnd(MESSAGE_BYTES, 'x');
  const fields = { client_id: exec.vu.idInTest, msg_id: number, msg: '' };
  fields.created_at = Date.now() * 1000;
  const frame = JSON.stringify(fields).length;
  fields.msg = 'x'.repeat(Math.max(0, MESSAGE_BYTES - frame));
  return JSON.stringify(fields);
}

// One line, as the lab reads it.
export function handleSummary(data) {
  const values = (name) => (data.metrics[name] || { values: {} }).values;
  const of = (stat) => values('latency_us')[stat] || 0;
  const figures = {
    sent: values('sent').count || 0,
    received: values('received').count || 0,
    lost: (values('sent').count || 0) - (values('received').count || 0),
    latency_us: {
      p50: of('p(50)'), p90: of('p(90)'), p99: of('p(99)'), max: of('max'), mean: of('avg'),
    },
    latency_from: 'sent',
  };
  return { stdout: `${JSON.stringify(figures)}\n` };
}
