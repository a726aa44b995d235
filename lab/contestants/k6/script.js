// Each virtual user has a connection, sends at its share of the rate, and awaits the last echoes.
import exec from 'k6/execution';
import { Counter, Trend } from 'k6/metrics';
import ws from 'k6/ws';

const CONNECTIONS = Number(__ENV.CONNECTIONS);
const DURATION_S = Number(__ENV.DURATION_S);
const MESSAGE_BYTES = Number(__ENV.MESSAGE_BYTES);
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
    // Echoes come in the order of the messages.
    const due = [];
    let left = MESSAGES;
    socket.on('message', () => {
      latency.add(now() - due.shift());
      received.add(1);
      if (left === 0 && due.length === 0) socket.close();
    });
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
      socket.send(String(left).padEnd(MESSAGE_BYTES, 'x'));
      sent.add(1);
    }
  });
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
