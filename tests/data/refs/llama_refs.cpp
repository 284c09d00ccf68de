// What llama.cpp computes: the source of greedy.json and perplexity.json (see make.py). Links libllama only.
//
//   llama_refs greedy MODEL STEPS < prompts
//
// stdin holds prompts, each ended by a zero byte. stdout is one JSON object per prompt and line:
//   {"text_ids": [ids of the prompt, with BOS where the model adds it],
//    "steps": [[best id, its logit, second id, its logit], ...]}
// The best token is always the one that goes on, end-of-generation tokens too, so that every prompt has STEPS steps.
//
//   llama_refs perplexity MODEL CONTEXT CHUNKS < text
//
// stdout is {"tokens": the text's tokens, "after_chunk": [perplexity of the chunks so far, ...]} by the protocol of
// llama-perplexity: chunks of CONTEXT tokens, each alone in the cache, its first token replaced by BOS where the model
// adds that; the second half is scored.
//
// Settings are llama.cpp's defaults (f16 cache, flash attention where it chooses it) on one thread: on a busy machine
// threads that wait for each other are slower.

#include "llama.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

static void fail(const char * what) {
    fprintf(stderr, "llama_refs: %s\n", what);
    exit(1);
}

struct Session {
    llama_context * context;
    const llama_vocab * vocab;
    int n_vocab;
};

static Session open_model(const char * path, int n_ctx) {
    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    llama_model * model = llama_model_load_from_file(path, model_params);
    if (!model) {
        fail("can't load the model");
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = n_ctx;
    params.n_batch = n_ctx;
    params.n_threads = 1;
    params.n_threads_batch = 1;
    llama_context * context = llama_init_from_model(model, params);
    if (!context) {
        fail("can't make a context");
    }
    const llama_vocab * vocab = llama_model_get_vocab(model);
    return {context, vocab, llama_vocab_n_tokens(vocab)};
}

static std::vector<llama_token> tokenize(const llama_vocab * vocab, const std::string & text) {
    std::vector<llama_token> ids(text.size() + 8);
    const int count = llama_tokenize(vocab, text.data(), text.size(), ids.data(), ids.size(),
                                     /* add_special */ true, /* parse_special */ false);
    if (count < 0) {
        fail("a text has more tokens than bytes");
    }
    ids.resize(count);
    return ids;
}

// Appends the best two logits of the last position to the JSON on stdout and gives the best id.
static llama_token print_best_two(const Session & session, bool is_first) {
    const float * logits = llama_get_logits_ith(session.context, -1);
    int best = logits[0] >= logits[1] ? 0 : 1;
    int second = 1 - best;
    for (int id = 2; id < session.n_vocab; id++) {
        if (logits[id] > logits[best]) {
            second = best;
            best = id;
        } else if (logits[id] > logits[second]) {
            second = id;
        }
    }
    printf("%s[%d, %.4f, %d, %.4f]", is_first ? "" : ", ", best, logits[best], second, logits[second]);
    return best;
}

static void greedy(const char * path, int n_steps, const std::string & input) {
    const Session session = open_model(path, 2048);
    for (size_t begin = 0; begin < input.size();) {
        const size_t end = input.find('\0', begin);
        if (end == std::string::npos) {
            fail("the last prompt has no zero byte after it");
        }
        std::vector<llama_token> ids = tokenize(session.vocab, input.substr(begin, end - begin));
        begin = end + 1;

        printf("{\"text_ids\": [");
        for (size_t i = 0; i < ids.size(); i++) {
            printf("%s%d", i ? ", " : "", ids[i]);
        }
        printf("], \"steps\": [");
        llama_memory_clear(llama_get_memory(session.context), true);
        llama_batch batch = llama_batch_get_one(ids.data(), ids.size());
        llama_token next;
        for (int step = 0; step < n_steps; step++) {
            if (llama_decode(session.context, batch)) {
                fail("can't decode");
            }
            next = print_best_two(session, step == 0);
            batch = llama_batch_get_one(&next, 1);
        }
        printf("]}\n");
        fflush(stdout);
    }
}

// The natural logarithm of the probability of `id`.
static double log_probability(const float * logits, int n_vocab, llama_token id) {
    const float highest = *std::max_element(logits, logits + n_vocab);
    double sum = 0;
    for (int i = 0; i < n_vocab; i++) {
        sum += std::exp(double(logits[i] - highest));
    }
    return double(logits[id] - highest) - std::log(sum);
}

static void perplexity(const char * path, int n_ctx, int n_chunks, const std::string & text) {
    const Session session = open_model(path, n_ctx);
    const std::vector<llama_token> ids = tokenize(session.vocab, text);
    if (ids.size() < size_t(n_ctx) * n_chunks) {
        fail("the text has too few tokens for this many chunks");
    }
    const int first = n_ctx / 2;
    double nll = 0;
    int n_scored = 0;
    llama_batch batch = llama_batch_init(n_ctx, 0, 1);
    batch.n_tokens = n_ctx;
    printf("{\"tokens\": %zu, \"after_chunk\": [", ids.size());
    for (int chunk = 0; chunk < n_chunks; chunk++) {
        const llama_token * chunk_ids = ids.data() + size_t(chunk) * n_ctx;
        for (int pos = 0; pos < n_ctx; pos++) {
            batch.token[pos] = chunk_ids[pos];
            batch.pos[pos] = pos;
            batch.n_seq_id[pos] = 1;
            batch.seq_id[pos][0] = 0;
            batch.logits[pos] = pos >= first;
        }
        if (llama_vocab_get_add_bos(session.vocab)) {
            batch.token[0] = llama_vocab_bos(session.vocab);
        }
        llama_memory_clear(llama_get_memory(session.context), true);
        if (llama_decode(session.context, batch)) {
            fail("can't decode");
        }
        for (int pos = first; pos + 1 < n_ctx; pos++) {
            const float * logits = llama_get_logits_ith(session.context, pos);
            nll -= log_probability(logits, session.n_vocab, chunk_ids[pos + 1]);
            n_scored++;
        }
        printf("%s%.4f", chunk ? ", " : "", std::exp(nll / n_scored));
    }
    printf("]}\n");
}

int main(int argc, char ** argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    const bool is_greedy = command == "greedy" && argc == 4;
    const bool is_perplexity = command == "perplexity" && argc == 5;
    if (!is_greedy && !is_perplexity) {
        fail("usage: llama_refs greedy MODEL STEPS < prompts | llama_refs perplexity MODEL CONTEXT CHUNKS < text");
    }
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level == GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();
    const std::string input((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    if (is_greedy) {
        greedy(argv[2], atoi(argv[3]), input);
    } else {
        perplexity(argv[2], atoi(argv[3]), atoi(argv[4]), input);
    }
    return 0;
}
