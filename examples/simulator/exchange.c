/*
 * exchange: the simulator of exchange.py in C, with liblorentz.
 *
 *     cc exchange.c -llorentz -o exchange && ./exchange 20000000 10
 *
 * The two programs begin in real time; the experiment brings them in. A message that a program sends
 * at virtual time T reaches the other one at T + DELAY (ns), since the simulator moves both to that
 * instant before it delivers.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lorentz.h>

#define TIMELINE 0
#define MAX_UNDER_WAY 64

struct node {
	pid_t pid;
	int in, out; /* of the program: the simulator writes and reads the other ends */
	char unread[4096];
	size_t length;
};

struct message {
	int64_t arrival_ns;
	int receiver;
	char text[64];
};

static struct node nodes[2];
static struct message under_way[MAX_UNDER_WAY];
static int messages, trips;
static int64_t least_ns = INT64_MAX, most_ns;

static void must(int result, const char *what)
{
	if (result) {
		fprintf(stderr, "exchange: %s: %s\n", what, lorentz_error());
		for (int i = 0; i < 2; i++)
			if (nodes[i].pid > 0)
				kill(nodes[i].pid, SIGKILL);
		exit(1);
	}
}

static void start(struct node *node, const char *role, const char *count)
{
	int in[2], out[2], begun[2];
	char nothing;

	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(begun, O_CLOEXEC))
		exit(1);
	node->pid = fork();
	if (node->pid == 0) {
		dup2(in[0], STDIN_FILENO);
		dup2(out[1], STDOUT_FILENO);
		execlp("python3", "python3", "node.py", role, count, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	/* Ends when the program is executed: until then the process is not the one to bring in. */
	close(begun[1]);
	while (read(begun[0], &nothing, 1) < 0 && errno == EINTR)
		;
	close(begun[0]);
	node->in = in[1];
	node->out = out[0];
	fcntl(node->out, F_SETFL, O_NONBLOCK);
}

/* "send T TEXT" puts a message under way; "took T" is the round trip that the program has measured. */
static void take_line(int of, char *line, int64_t delay)
{
	char *value = strchr(line, ' ') + 1;
	int64_t number = strtoll(value, &value, 10);

	if (!strncmp(line, "took ", 5)) {
		least_ns = number < least_ns ? number : least_ns;
		most_ns = number > most_ns ? number : most_ns;
		trips++;
	} else if (messages < MAX_UNDER_WAY) {
		struct message *message = &under_way[messages++];

		message->arrival_ns = number + delay;
		message->receiver = 1 - of;
		snprintf(message->text, sizeof(message->text), "%s\n", value + 1);
	}
}

static void take_lines(int of, int64_t delay)
{
	struct node *node = &nodes[of];
	ssize_t more;
	char *end;

	while ((more = read(node->out, node->unread + node->length,
			    sizeof(node->unread) - 1 - node->length)) > 0)
		node->length += more;
	node->unread[node->length] = '\0';
	while ((end = strchr(node->unread, '\n'))) {
		*end = '\0';
		take_line(of, node->unread, delay);
		node->length -= end + 1 - node->unread;
		memmove(node->unread, end + 1, node->length + 1);
	}
}

static void deliver(int64_t now)
{
	for (int i = 0; i < messages; i++) {
		struct message *message = &under_way[i];

		if (message->arrival_ns > now)
			continue;
		if (write(nodes[message->receiver].in, message->text, strlen(message->text)) < 0)
			perror("exchange: write");
		*message = under_way[--messages];
		i--;
	}
}

static int64_t next_step(int64_t now, int64_t delay)
{
	int64_t step = delay;

	for (int i = 0; i < messages; i++)
		if (under_way[i].arrival_ns - now < step)
			step = under_way[i].arrival_ns - now;
	return step;
}

int main(int argc, char **argv)
{
	const int64_t delay = argc > 1 ? atoll(argv[1]) : 20000000;
	char *requests = argc > 2 ? argv[2] : "10";
	lorentz_experiment *experiment;
	lorentz_time_t time;
	int64_t now;

	start(&nodes[0], "asks", requests);
	start(&nodes[1], "answers", "");
	/* Nothing is left of it if this program fails. */
	const lorentz_settings settings = {.end_with_process = 1};
	must(lorentz_experiment_create("exchange", &settings, &experiment), "create");
	for (int i = 0; i < 2; i++)
		must(lorentz_experiment_add(experiment, lorentz_pid(nodes[i].pid), 1, TIMELINE), "add");
	must(lorentz_experiment_synchronize(experiment), "synchronize");
	must(lorentz_time(lorentz_pid(nodes[0].pid), &time), "time");
	now = time.monotonic_ns;
	while (trips < atoi(requests)) {
		int64_t step = next_step(now, delay);

		for (int i = 0; i < 2; i++)
			must(lorentz_experiment_set_interval(experiment, lorentz_pid(nodes[i].pid), step,
							     TIMELINE),
			     "set_interval");
		must(lorentz_experiment_progress(experiment, TIMELINE), "progress");
		now += step;
		take_lines(0, delay);
		take_lines(1, delay);
		deliver(now);
	}
	lorentz_experiment_end(experiment);
	kill(nodes[1].pid, SIGTERM);
	waitpid(nodes[0].pid, NULL, 0);
	printf("%d requests over a link of %g ms each took, in virtual time:\n", trips, delay / 1e6);
	printf("  %.6f ms at least, %.6f ms at most\n", least_ns / 1e6, most_ns / 1e6);
	return 0;
}
