// What llama.cpp says next, greedily, after prompts of raw text: the source of greedy.json (see make.py).
//
//   llama_greedy MODEL STEPS < prompts
//
// stdin holds prompts, each ended by a zero byte. stdout is one JSON object per prompt and line:
//   {"text_ids": [ids of the prompt, with BOS where the model adds it],
//    "steps": [[best id, its logit, second id, its logit], ...]}
// Settings are llama.cpp's defaults but for the number of threads: f16 cache, flash attention where it chooses it.
// The best token is always the one that goes on, end-of-generation tokens too, so that every prompt has STEPS steps.

#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

static void fail(const char * what) {
    fprintf(stderr, "llama_greedy: %s\n", what);
    exit(1);
}

static std::vector<llama_token> tokenize(const llama_vocab * vocab, const std::string & text) {
    std::vector<llama_token> ids(text.size() + 8);
    const int count = llama_tokenize(vocab, text.data(), text.size(), ids.data(), ids.size(),
                                     /* add_special */ true, /* parse_special */ false);
    if (count < 0) {
        fail("a prompt has more tokens than bytes");
    }
    ids.resize(count);
    return ids;
}

int main(int argc, char ** argv) {
    if (argc != 3) {
        fail("usage: llama_greedy MODEL STEPS < prompts");
    }
    llama_log_set([](ggml_log_level level, const char * text, void *) {
        if (level >= GGML_LOG_LEVEL_ERROR) {
            fputs(text, stderr);
        }
    }, nullptr);
    llama_backend_init();

    llama_model_params model_params = llama_model_default_params();
    model_params.n_gpu_layers = 0;
    llama_model * model = llama_model_load_from_file(argv[1], model_params);
    if (!model) {
        fail("can't load the model");
    }
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const int n_vocab = llama_vocab_n_tokens(vocab);
    const int n_steps = atoi(argv[2]);

    llama_context_params params = llama_context_default_params();
    params.n_ctx = 2048;
    params.n_batch = 2048;
    params.n_threads = 2;
    params.n_threads_batch = 2;
    llama_context * context = llama_init_from_model(model, params);
    if (!context) {
        fail("can't make a context");
    }

    const std::string input((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
    for (size_t begin = 0; begin < input.size();) {
        const size_t end = input.find('\0', begin);
        if (end == std::string::npos) {
            fail("the last prompt has no zero byte after it");
        }
        std::vector<llama_token> ids = tokenize(vocab, input.substr(begin, end - begin));
        begin = end + 1;

        printf("{\"text_ids\": [");
        for (size_t i = 0; i < ids.size(); i++) {
            printf("%s%d", i ? ", " : "", ids[i]);
        }
        printf("], \"steps\": [");

        llama_memory_clear(llama_get_memory(context), true);
        llama_batch batch = llama_batch_get_one(ids.data(), ids.size());
        llama_token next;
        for (int step = 0; step < n_steps; step++) {
            if (llama_decode(context, batch)) {
                fail("can't decode");
            }
            const float * logits = llama_get_logits_ith(context, -1);
            int best = logits[0] >= logits[1] ? 0 : 1;
            int second = 1 - best;
            for (int id = 2; id < n_vocab; id++) {
                if (logits[id] > logits[best]) {
                    second = best;
                    best = id;
                } else if (logits[id] > logits[second]) {
                    second = id;
                }
            }
            printf("%s[%d, %.4f, %d, %.4f]", step ? ", " : "", best, logits[best], second, logits[second]);
            next = best;
            batch = llama_batch_get_one(&next, 1);
        }
        printf("]}\n");
        fflush(stdout);
    }
    return 0;
}
